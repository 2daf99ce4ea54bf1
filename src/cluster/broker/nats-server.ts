/** A private nats-server for this process, with a store and a token of its own. */

import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'
import { once } from '../../foundation/service.ts'
import { BackOff } from '../../runtime/back-off.ts'
import { GuardedServer } from '../../runtime/server/guarded-server.ts'
import { poll } from '../../runtime/retry.ts'
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
  /** Enables TLS. Both are in PEM form. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** Whether the server may have been stopped along with this process: then nothing is logged. */
  readonly isEndExpected?: () => boolean
}

const startMs = 10_000
const pollMs = 20
/** The most restarts in a row: a server that has run for `steadyMs` resets the count. */
const maxRestarts = 5
const steadyMs = 60_000

/** The server ends with this process, even if killed; until then it is restarted when it ends. */
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
  readonly #backOff = new BackOff({ firstDelayMs: 100, maxDelayMs: 5000 })
  readonly #lost = Promise.withResolvers<BackendError>()
  #url: string | null = null
  #process: GuardedServer | null = null
  #cancelStart: () => void = () => {}

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
    this.#watch(server).catch((error: unknown) => this.#giveUp(messageOf(error)))
  }

  readonly close = once(async (): Promise<void> => {
    this.#cancelStart()
    await this.#process?.stop()
    // The guard process removes the folder, unless the guard itself was killed.
    await removeFolder(this.folder, this.#options.clock)
  })

  async #watch(server: GuardedServer): Promise<void> {
    const { clock } = this.#options
    const readyMs = clock.monotonicMs()
    const reason = await server.ended
    if (clock.monotonicMs() - readyMs >= steadyMs) this.#backOff.reset()
    this.#startAgain(`${reason} ${lastLineOf(server.output)}`.trim())
  }

  #startAgain(reason: string): void {
    if (this.close.isCalled) return
    const { clock, isEndExpected } = this.#options
    const delayMs = this.#backOff.fail(clock.monotonicMs())
    const { failures } = this.#backOff
    if (failures > maxRestarts) return this.#giveUp(reason)
    const text = `the nats-server of this process at ${this.url} has ended: ${reason}`
    const start = (): void => {
      // Checked only now: a signal to both processes may have reached the server first.
      if (isEndExpected?.() !== true) {
        const which = `restart ${failures} of at most ${maxRestarts} in a row`
        this.#options.log.warn('NatsServerRestarted', `${text}; it is started again (${which})`)
      }
      this.start().catch((error: unknown) => this.#startAgain(messageOf(error)))
    }
    this.#cancelStart = clock.after(delayMs, start, { background: true })
  }

  #giveUp(reason: string): void {
    const count = maxRestarts + 1
    const text = `the nats-server of this process at ${this.url} has ended ${count} times in a row`
    this.#options.log.warn('NatsServerLost', `${text}, and is not started again: ${reason}`)
    this.#lost.resolve(new BackendError(`${text}: ${reason}`, { code: 'NatsServerLostError' }))
  }

  /**
   * Writes the configuration and returns its path. It is a file, because everybody can read the
   * arguments of a process. A restarted server gets the same port, and the store if that still
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
