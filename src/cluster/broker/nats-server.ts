/** A private nats-server for this process, with its own store and token. */

import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'
import { once } from '../../foundation/service.ts'
import { poll, supervise, type SupervisedRun } from '../../runtime/retry.ts'
import { GuardedServer } from '../../runtime/server/guarded-server.ts'
import { createOwnedFolder, removeFolder } from '../owned-folder.ts'
import { findNatsServer } from './nats-program.ts'

export interface NatsServer {
  readonly url: string
  /** The folder of the store and the configuration; removed with the server. */
  readonly folder: string
  /** Resolves when the server has ended too often to be restarted. */
  readonly lost: Promise<BackendError>
  close(): Promise<void>
}

export interface NatsServerOptions {
  readonly token: string
  readonly clock: Clock
  /** Default: Node's warnings. */
  readonly log?: Log
  /** Default 127.0.0.1. */
  readonly host?: string
  /** Enables TLS. Both values are in PEM form. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** Whether the server may have been stopped along with this process. Then nothing is logged. */
  readonly isEndExpected?: () => boolean
}

const startMs = 10_000
const pollMs = 20
/** The maximum number of consecutive restarts. The count is reset after `steadyMs` of uptime. */
const maxRestarts = 5
const restartPolicy = {
  firstDelayMs: 100,
  maxDelayMs: 5000,
  giveUpAfter: maxRestarts + 1,
  steadyMs: 60_000,
}

/** The server is restarted when it exits, and stops when this process exits, even if killed. */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  const program = findNatsServer()
  const { clock, log = processLog } = options
  const folder = await createOwnedFolder(tmpdir(), 'tutti-nats', clock, (left, error) => {
    log.warn('WorkFolderNotRemoved', `${left}: ${messageOf(error)}`)
  })
  const server = new PrivateServer(program, folder, { ...options, log })
  try {
    await server.start()
    return server
  } catch (error) {
    await server.close()
    throw new BackendError(`nats-server cannot be started: ${messageOf(error)}`, {
      code: 'NatsServerFailedError',
      hint: `Check that ${program} is a nats-server which this user may execute.`,
      cause: error,
    })
  }
}

/** One address, certificate and store, used by successive server processes. */
class PrivateServer implements NatsServer {
  readonly folder: string
  readonly #program: string
  readonly #options: NatsServerOptions & { readonly log: Log }
  readonly #closing = new AbortController()
  readonly #lost = Promise.withResolvers<BackendError>()
  #url: string | null = null
  #process: GuardedServer | null = null
  /** Why the last server exited. */
  #reason = ''

  constructor(program: string, folder: string, options: NatsServerOptions & { log: Log }) {
    this.#program = program
    this.#options = options
    this.folder = folder
  }

  get url(): string {
    return this.#url ?? ''
  }

  get lost(): Promise<BackendError> {
    return this.#lost.promise
  }

  /** Rejects if the server is not ready in time; then no process remains. */
  async start(): Promise<void> {
    let first: GuardedServer | null = await this.#launch()
    const { clock } = this.#options
    const { signal } = this.#closing
    const run = (current: SupervisedRun): Promise<string> => {
      const server = first
      first = null
      return this.#run(current, server)
    }
    supervise(restartPolicy, run, { clock, signal, background: true })
      .then((reason) => (reason === null ? undefined : this.#giveUp(reason)))
      .catch((error: unknown) => this.#giveUp(messageOf(error)))
  }

  async #launch(): Promise<GuardedServer> {
    const { clock } = this.#options
    const { PATH = '' } = process.env
    const ports = join(this.folder, 'ports')
    const server = new GuardedServer({
      command: [this.#program, '-c', this.#writeFiles(ports)],
      env: { PATH },
      guardEnv: { PATH },
      graceMs: 2000,
      clock,
      folder: this.folder,
      isFolderKept: true,
      onLine: () => {},
    })
    this.#process = server
    try {
      await server.launched
      this.#url = await findUrl(ports, server, clock)
    } catch (error) {
      await server.stop()
      throw error
    }
    server.unref()
    return server
  }

  readonly close = once(async (): Promise<void> => {
    this.#closing.abort()
    await this.#process?.stop()
    // The guard process normally removes the folder, but may have been killed itself.
    await removeFolder(this.folder, this.#options.clock)
  })

  async #run({ failures, onReady }: SupervisedRun, launched: GuardedServer | null) {
    // Checked late, because a signal to both processes may have reached the server first.
    if (failures > 0 && this.#options.isEndExpected?.() !== true) this.#warn(failures)
    try {
      const server = launched ?? (await this.#launch())
      onReady()
      this.#reason = `${await server.ended} ${lastLineOf(server.output)}`.trim()
    } catch (error) {
      this.#reason = messageOf(error)
    }
    return this.#reason
  }

  #warn(failures: number): void {
    const text = `the nats-server of this process at ${this.url} has ended: ${this.#reason}`
    const which = `restart ${failures} of at most ${maxRestarts} in a row`
    this.#options.log.warn('NatsServerRestarted', `${text}; it is started again (${which})`)
  }

  #giveUp(reason: string): void {
    const count = maxRestarts + 1
    const text = `the nats-server of this process at ${this.url} has ended ${count} times in a row`
    this.#options.log.warn('NatsServerLost', `${text}, and is not started again: ${reason}`)
    this.#lost.resolve(new BackendError(`${text}: ${reason}`, { code: 'NatsServerLostError' }))
  }

  /**
   * Writes the configuration and returns its path. Uses a file, because all users can read the
   * arguments of a process. A restarted server gets the same port, and the same store if it still
   * exists.
   */
  #writeFiles(ports: string): string {
    const { token, host = '127.0.0.1', tls } = this.#options
    const { folder } = this
    const configuration = join(folder, 'server.conf')
    rmSync(ports, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    mkdirSync(ports)
    const port = this.#url === null ? '-1' : new URL(this.#url).port
    const lines = [
      `listen: ${JSON.stringify(`${host}:${port}`)}`,
      `jetstream { store_dir: ${JSON.stringify(join(folder, 'store'))} }`,
      `authorization { token: ${JSON.stringify(token)} }`,
      `ports_file_dir: ${JSON.stringify(ports)}`,
      ...(tls === undefined ? [] : [toTlsLine(tls, folder)]),
    ]
    writeFileSync(configuration, `${lines.join('\n')}\n`, { mode: 0o600 })
    return configuration
  }
}

const lastLineOf = (output: string): string => output.split('\n').at(-1)?.trim() ?? ''

function toTlsLine(tls: { certificate: string; key: string }, folder: string): string {
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')]
  writeFileSync(certificate, tls.certificate)
  writeFileSync(key, tls.key, { mode: 0o600 })
  return `tls { cert_file: ${JSON.stringify(certificate)}, key_file: ${JSON.stringify(key)} }`
}

/** Waits for the file in which the server writes its port. */
async function findUrl(folder: string, server: GuardedServer, clock: Clock): Promise<string> {
  let exit: string | null = null
  server.ended
    .then((reason) => (exit = reason))
    .catch((error: unknown) => (exit = messageOf(error)))
  const read = (): string | undefined => {
    if (exit !== null) throw new Error(`it ended with ${exit}: ${server.output}`)
    const file = readdirSync(folder).find((name) => name.endsWith('.ports'))
    const text = file === undefined ? '' : readTextFileSync(join(folder, file))
    return /"((?:nats|tls):\/\/[^"]+)"/.exec(text)?.[1]
  }
  const url = await poll({ delayMs: pollMs, timeoutMs: startMs }, read, { clock })
  if (url !== undefined) return url
  throw new Error(`it was not ready within ${startMs / 1000} s: ${server.output}`)
}
