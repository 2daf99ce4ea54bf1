/** A server of its own, and agents as a person starts them: processes of `tutti agent`. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, onTestFinished } from 'vitest'
import type { Agent } from '../../src/cluster/io/agent/agent.ts'
import { startAgent, type StartAgentOptions } from '../../src/cluster/io/agent/agent-options.ts'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { type NatsServer, startNatsServer } from '../../src/cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import type { Announcement } from '../../src/cluster/wire/messages.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { Session } from '../../src/session/session.ts'
import { type RunningCommand, startCommand } from '../cli/run-command.ts'
import { childrenOf, commandOf } from './processes.ts'
import { token } from './test-token.ts'

export interface TestCluster {
  readonly server: NatsServer
  /** Of the server. */
  readonly url: string
  readonly folder: string
  readonly tokenFile: string
  agent(name: string, ...args: readonly string[]): Promise<RunningCommand>
  /** Those that announce themselves. */
  agents(): Promise<readonly Announcement[]>
  connect(options?: Partial<ClusterBackendOptions>): Promise<ClusterBackend>
}

const isWatcher = (pid: number): boolean => commandOf(pid).includes('watcher-program')

/** The server that an agent is connected to, and where it keeps its files. */
type Target = { readonly url: string; readonly folder: string }

type AtEnd = (end: () => void | Promise<void>) => void

/** A process of `tutti agent`, which ends with the test. */
export const startAgentOf = (
  url: string,
  folder: string,
  name: string,
  ...args: readonly string[]
): Promise<RunningCommand> => startAgentUntil(onTestFinished, url, folder, name, ...args)

async function startAgentUntil(
  atEnd: AtEnd,
  url: string,
  folder: string,
  name: string,
  ...args: readonly string[]
): Promise<RunningCommand> {
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, `${token}\n`, { mode: 0o600 })
  const connection = ['--connect', url, '--token-file', tokenFile]
  const command = startCommand(['agent', ...connection, '--name', name, ...args])
  const { child } = command
  // The next one may have its name.
  atEnd(async () => {
    child.kill('SIGKILL')
    await command.ended
  })
  await command.seen('is connected')
  // Its watcher reports for seconds that it was killed, even if the server is gone.
  const watchers = childrenOf(child.pid ?? 0).filter(isWatcher)
  atEnd(() => watchers.filter(isWatcher).forEach((pid) => process.kill(pid, 'SIGKILL')))
  return command
}

/** Everything ends with the test. */
export const startTestCluster = (): Promise<TestCluster> => startClusterUntil(onTestFinished)

/**
 * A server and agents in this process for all tests that let them live and close their sessions.
 * Started by the first call. Each test gets a folder of its own, and the agents that it starts end
 * with it.
 */
export function sharedTestCluster(...agents: readonly string[]): () => Promise<TestCluster> {
  const ends: (() => void | Promise<void>)[] = []
  let starting: Promise<TestCluster> | null = null
  afterAll(async () => {
    for (const end of ends.toReversed()) await end()
  })
  const start = async (): Promise<TestCluster> => {
    const atEnd: AtEnd = (end) => void ends.push(end)
    const cluster = await startClusterUntil(atEnd)
    for (const name of agents) await startAgentUntilEnd(atEnd, cluster, { name })
    return cluster
  }
  return async () => {
    starting ??= start()
    const folder = makeFolder(onTestFinished)
    const cluster = await starting
    const agent = (name: string, ...args: readonly string[]): Promise<RunningCommand> =>
      startAgentOf(cluster.url, folder, name, ...args)
    return { ...cluster, folder, agent }
  }
}

/** A session whose folder no node has any more. */
export function sessionElsewhere(backend: ClusterBackend): Session {
  const workDir = mkdtempSync(join(tmpdir(), 'tutti-elsewhere-'))
  const session = new Session([backend], { workDir })
  rmSync(workDir, { recursive: true })
  return session
}

function makeFolder(atEnd: AtEnd): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-cluster-'))
  atEnd(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

async function startClusterUntil(atEnd: AtEnd): Promise<TestCluster> {
  const folder = makeFolder(atEnd)
  const server = await startNatsServer({ token, clock: systemClock })
  atEnd(() => server.close())
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, `${token}\n`, { mode: 0o600 })
  return {
    server,
    url: server.url,
    folder,
    tokenFile,
    agent: (name, ...args) => startAgentUntil(atEnd, server.url, folder, name, ...args),
    async agents() {
      return (await findAgents({ servers: server.url, token })).agents
    },
    connect: (options = {}) => ClusterBackend.create({ servers: server.url, token, ...options }),
  }
}

/**
 * An agent in this process, which ends with the test. It starts with a tenth of the CPU time of a
 * process, and is all that a test needs which does not end one.
 */
export const startAgentHere = (
  target: Target,
  options: Partial<StartAgentOptions>,
): Promise<Agent> => startAgentUntilEnd(onTestFinished, target, options)

async function startAgentUntilEnd(
  atEnd: AtEnd,
  { url, folder }: Target,
  options: Partial<StartAgentOptions>,
): Promise<Agent> {
  const own = { servers: url, token, cores: 1, workDir: join(folder, 'work') }
  const agent = await startAgent({ ...own, ...options })
  atEnd(() => agent.close({ waitForResults: false }))
  return agent
}
