/** Runs a private nats-server for this process, with its own store and token. */

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

export interface NatsServerOptions {
  readonly token: string
  readonly clock: Clock
  readonly log?: Log
  readonly host?: string
  /** Enables TLS. Both values are in PEM form. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** Whether this process is being stopped. An exit of the server is then not logged. */
  readonly isExitExpected?: () => boolean
}

const startTimeoutMs = 10_000
const pollIntervalMs = 20
const maxRestarts = 5
const restartPolicy = {
  firstDelayMs: 100,
  maxDelayMs: 5000,
  giveUpAfter: maxRestarts + 1,
  steadyMs: 60_000,
}

/** Starts a server that is restarted when it exits, and that never outlives this process. */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  const program = findNatsServer()
  const { clock, log = processLog } = options
  const folder = await createOwnedFolder(tmpdir(), 'tutti-nats', clock, (left, error) => {
    log.warn('WorkFolderNotRemoved', `${left}: ${messageOf(error)}`)
  })
  const server = new NatsServer(program, folder, { ...options, log })
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

/** A server with a fixed address, certificate and store. Its process is replaced when it exits. */
export class NatsServer {
  /** The folder of the store and the configuration. Removed when the server is closed. */
  readonly folder: string
  readonly #program: string
  readonly #options: NatsServerOptions & { readonly log: Log }
  readonly #closing = new AbortController()
  readonly #lost = Promise.withResolvers<BackendError>()
  #url: string | null = null
  #process: GuardedServer | null = null
  #exitReason = ''

  constructor(program: string, folder: string, options: NatsServerOptions & { log: Log }) {
    this.#program = program
    this.#options = options
    this.folder = folder
  }

  get url(): string {
    return this.#url ?? ''
  }

  /** Resolves when the server has exited too often in a row and is not restarted anymore. */
  get lost(): Promise<BackendError> {
    return this.#lost.promise
  }

  /** Rejects if the server is not ready in time; no process is left running in that case. */
  async start(): Promise<void> {
    let firstServer: GuardedServer | null = await this.#launch()
    const { clock } = this.#options
    const { signal } = this.#closing
    const run = (current: SupervisedRun): Promise<string> => {
      const server = firstServer
      firstServer = null
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
      command: [this.#program, '-c', this.#writeConfig(ports)],
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
      this.#url = await waitForUrl(ports, server, clock)
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
    // The guard process normally removes the folder, but it may have been killed.
    await removeFolder(this.folder, this.#options.clock)
  })

  async #run({ failures, onReady }: SupervisedRun, launched: GuardedServer | null) {
    // `isExitExpected` is called only after the restart delay: if both processes get a signal, the
    // server may exit before this process receives it.
    if (failures > 0 && this.#options.isExitExpected?.() !== true) this.#warn(failures)
    try {
      const server = launched ?? (await this.#launch())
      onReady()
      this.#exitReason = `${await server.ended} ${getLastLine(server.output)}`.trim()
    } catch (error) {
      this.#exitReason = messageOf(error)
    }
    return this.#exitReason
  }

  #warn(failures: number): void {
    const text = `the nats-server of this process at ${this.url} has ended: ${this.#exitReason}`
    const countText = `restart ${failures} of at most ${maxRestarts} in a row`
    this.#options.log.warn('NatsServerRestarted', `${text}; it is started again (${countText})`)
  }

  #giveUp(reason: string): void {
    const count = maxRestarts + 1
    const text = `the nats-server of this process at ${this.url} has ended ${count} times in a row`
    this.#options.log.warn('NatsServerLost', `${text}, and is not started again: ${reason}`)
    this.#lost.resolve(new BackendError(`${text}: ${reason}`, { code: 'NatsServerLostError' }))
  }

  /**
   * Writes the token to a file, because all users can read the arguments of a process. A restarted
   * server gets the same port, and the same store if it still exists.
   */
  #writeConfig(ports: string): string {
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
      ...(tls === undefined ? [] : [writeTlsFiles(tls, folder)]),
    ]
    writeFileSync(configuration, `${lines.join('\n')}\n`, { mode: 0o600 })
    return configuration
  }
}

const getLastLine = (output: string): string => output.split('\n').at(-1)?.trim() ?? ''

function writeTlsFiles(tls: { certificate: string; key: string }, folder: string): string {
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')]
  writeFileSync(certificate, tls.certificate)
  writeFileSync(key, tls.key, { mode: 0o600 })
  return `tls { cert_file: ${JSON.stringify(certificate)}, key_file: ${JSON.stringify(key)} }`
}

/** Waits for the file to which the server writes its port, and resolves with the server's URL. */
async function waitForUrl(folder: string, server: GuardedServer, clock: Clock): Promise<string> {
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
  const url = await poll({ delayMs: pollIntervalMs, timeoutMs: startTimeoutMs }, read, { clock })
  if (url !== undefined) return url
  throw new Error(`it was not ready within ${startTimeoutMs / 1000} s: ${server.output}`)
}
