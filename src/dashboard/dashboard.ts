/** Starts a dashboard: checks its options, chooses its source and creates its links. */

import { isPipe } from '../checkpoint/chain.ts'
import { isBeingWritten } from '../checkpoint/lock.ts'
import { type Clock, systemClock } from '../foundation/clock.ts'
import { TuttiError, ValueError } from '../foundation/errors.ts'
import { type Log, processLog } from '../foundation/log.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectObject,
  expectString,
  invalid,
  isLoopbackHost,
} from '../foundation/options.ts'
import { statOf } from '../foundation/regular-file.ts'
import { once } from '../foundation/service.ts'
import { expectRecord } from '../record/find-record.ts'
import type { RecordWriterStates } from '../record/record-views.ts'
import { type DashboardControl, DashboardServer } from './dashboard-server.ts'
import { pageFolder, readPageFiles } from './page-files.ts'
import { FolderSources } from './sources/folder-sources.ts'
import { FollowingSource } from './sources/following-source.ts'
import { type DashboardTelemetry, LiveSource } from './sources/live-source.ts'
import { RecordSource } from './sources/record-source.ts'
import { createFactsReader } from './sources/telemetry-facts.ts'
import type { ViewSource, ViewSources } from './sources/view-source.ts'

/** Where a dashboard can be reached, and which actions it offers. */
export interface DashboardOptions {
  /** The port to listen on. Default: 4646, or the next free port if that is taken. */
  readonly port?: number
  /**
   * The host to listen on. Default `127.0.0.1`. With another host, other machines can reach the
   * page; they need a link as well.
   */
  readonly host?: string
  /** Actions on the run, for browsers that opened `controlUrl`. Default: none. */
  readonly control?: DashboardControl
  /** Further names under which browsers reach the page, such as that of a proxy. Default: none. */
  readonly allowHosts?: readonly string[]
}

/** A running dashboard. It does not keep the program alive. */
export interface Dashboard {
  /** A link that works once: in the first browser that opens it. */
  readonly url: string
  /** A link that works once, with control of the run; absent without `control`. */
  readonly controlUrl?: string
  /** Returns another link that works once. */
  link(): string
  /** Closes the server. Idempotent. */
  close(): Promise<void>
  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Parts that commands and tests replace. */
export interface DashboardParts {
  readonly writers?: RecordWriterStates
  readonly pageFolder?: string
  readonly clock?: Clock
  readonly log?: Log
}

const defaultPort = 4646
const maxPorts = 100
/** A process on another host that holds the lock of a record is assumed to be alive. */
const lockHolders: RecordWriterStates = {
  isWriting: (folder, sessionId) => Promise.resolve(isBeingWritten(folder, sessionId)),
}

/**
 * Shows a run in the browser while it runs, or afterwards. `source` is the telemetry of a session,
 * or the path of a record, or of a folder with records. If the session writes no record, the page
 * shows only what happens after its first viewer has opened it.
 *
 * @example
 * const telemetry = await session.startTelemetry({ checkpointPath: './telemetry' })
 * const dashboard = await startDashboard(telemetry)
 * console.log(dashboard.url)
 */
export const startDashboard = (
  source: DashboardTelemetry | string,
  options: DashboardOptions = {},
): Promise<Dashboard> => openDashboard(source, options)

/** A function returns the path of the record; `null` until there is one. */
type DashboardSource = DashboardTelemetry | string | (() => string | null)

export async function openDashboard(
  from: DashboardSource,
  options: DashboardOptions,
  parts: DashboardParts = {},
): Promise<Dashboard> {
  const { host = '127.0.0.1', port, control = null, allowHosts = [] } = checkOptions(options)
  const { clock = systemClock, log = processLog } = parts
  if (typeof from === 'string') await expectReadable(from)
  const sources = createSources(from, parts.writers ?? lockHolders, clock)
  const files = readPageFiles(parts.pageFolder ?? pageFolder)
  const common = { sources, files, control, host, allowHosts, clock, log }
  const server = await listen((at) => new DashboardServer({ ...common, port: at }), port)
  const { access } = server
  const base = isLoopbackHost(host) ? localAddress(host, server.endpoint) : server.endpoint
  const linkFor = (mayControl: boolean): string => `${base}/?t=${access.createLink(mayControl)}`
  const close = once(async (): Promise<void> => {
    await server.stop()
    await sources.close()
  })
  return {
    url: linkFor(false),
    ...(control === null ? {} : { controlUrl: linkFor(true) }),
    link: () => linkFor(false),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** Rejects a pipe, and a file that is not a record. Accepts a path that does not exist yet. */
async function expectReadable(path: string): Promise<void> {
  if (isPipe(expectString('source', path))) {
    throw new ValueError('a dashboard reads no pipe', { hint: 'Name a file.' })
  }
  const stats = statOf(path)
  if (stats !== null && !stats.isDirectory()) await expectRecord(path)
}

function checkOptions(options: DashboardOptions): DashboardOptions {
  expectObject('options', options)
  expectKnownKeys('startDashboard', options, ['port', 'host', 'control', 'allowHosts'])
  const { port, host, control, allowHosts } = options
  if (port !== undefined) expectInteger('port', port, { min: 0, max: 65_535 })
  if (host !== undefined) expectString('host', host)
  if (control !== undefined) {
    expectObject('control', control)
    expectKnownKeys('control', control, ['cancel', 'retry'])
    for (const name of ['cancel', 'retry'] as const) {
      if (control[name] !== undefined) expectMethods('control', control, [name])
    }
  }
  if (allowHosts !== undefined) {
    if (!Array.isArray(allowHosts)) throw invalid('allowHosts', 'an array of names', allowHosts)
    for (const [at, name] of allowHosts.entries()) expectString(`allowHosts[${at}]`, name)
  }
  return options
}

function createSources(
  from: DashboardSource,
  writers: RecordWriterStates,
  clock: Clock,
): ViewSources {
  const isFolder = typeof from === 'string' && statOf(from)?.isDirectory() === true
  if (isFolder) return new FolderSources(from, { writers, clock })
  const source = createSource(from, writers, clock)
  return { find: () => source, close: () => source.close() }
}

function createSource(
  from: DashboardSource,
  writers: RecordWriterStates,
  clock: Clock,
): ViewSource {
  if (typeof from === 'function') return new FollowingSource(from, writers)
  if (typeof from === 'string') return new RecordSource(from, { writers })
  expectMethods('source', from, ['subscribe'])
  const { checkpointFile } = from
  if (checkpointFile !== null) {
    return new RecordSource(checkpointFile, { writers, readFacts: createFactsReader(from, clock) })
  }
  return new LiveSource(from, clock)
}

/** Listens on the port. Without a given port, tries the next ones until one is free. */
async function listen(
  create: (port: number) => DashboardServer,
  port: number | undefined,
): Promise<DashboardServer> {
  for (let at = port ?? defaultPort; ; at++) {
    const server = create(at)
    try {
      await server.start()
      return server
    } catch (error) {
      const isTaken = TuttiError.isInstance(error) && error.code === 'port_in_use'
      if (!isTaken || port !== undefined || at >= defaultPort + maxPorts) throw error
    }
  }
}

/** Uses the given host, because a browser may resolve this machine's name to another address. */
function localAddress(host: string, endpoint: string): string {
  const { port } = new URL(endpoint)
  return `http://${host.includes(':') ? `[${host.replace(/[[\]]/g, '')}]` : host}:${port}`
}
