/** A server program with all that it starts, which ends with its guard and with us. */

import type { Clock } from '../../foundation/clock.ts'
import { endProgram } from '../process-group.ts'
import { newChannelId, siblingProgram, SupervisedChild } from '../supervised-child.ts'
import type { FromGuard, ToGuard } from './guard.ts'

export interface GuardedServerOptions {
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Of the process that ends the server with this one. */
  readonly guardEnv: Readonly<Record<string, string>>
  /** Between SIGTERM and SIGKILL. */
  readonly graceMs: number
  readonly clock: Clock
  /** Removed when the program has ended, also when this process was killed before. */
  readonly folder?: string
  /** The folder stays for the next one if the program ends by itself. Default `false`. */
  readonly isFolderKept?: boolean
  /** Each line of its output. */
  readonly onLine: (line: string) => void
}

/** Its heap holds next to nothing. */
const nodeFlags = ['--v8-pool-size=1', '--max-old-space-size=64', '--no-warnings']
/** Where Node keeps compiled modules, if it was told: the guard starts in half the time. */
const compileCache = (): Record<string, string> => {
  const { NODE_COMPILE_CACHE: folder } = process.env
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: folder }
}
/** What a guard may take beyond the grace of its server. */
const guardMs = 10_000

/** Runs from its construction to `stop`. */
export class GuardedServer {
  readonly #options: GuardedServerOptions
  readonly #guard: SupervisedChild<ToGuard, FromGuard>
  readonly #launched = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<string>()
  readonly #mark = `${process.pid}-${newChannelId()}`
  #pid: number | undefined
  #exitReason: string | undefined

  constructor(options: GuardedServerOptions) {
    this.#options = options
    const { command, env, guardEnv, graceMs, clock, folder = null, isFolderKept = false } = options
    this.#launched.promise.catch(() => {})
    this.#guard = new SupervisedChild<ToGuard, FromGuard>({
      program: siblingProgram(import.meta.url, 'guard'),
      clock,
      execArgv: nodeFlags,
      env: { ...guardEnv, ...compileCache() },
      isDetached: true,
      stdout: 'capture',
      stderr: 'capture',
      graceMs: graceMs + guardMs,
      onLine: (line) => options.onLine(line),
      onMessages: (messages) => {
        for (const message of messages) this.#receive(message)
      },
      onExit: ({ code, error }) => {
        if (error !== null) this.#launched.reject(error)
        void this.#finish(code === 0)
      },
    })
    this.#guard.ref()
    this.#guard.start()
    const mark = this.#mark
    this.#guard.send({ kind: 'launch', command, env, mark, graceMs, folder, isFolderKept })
  }

  /** Resolves when the program runs. */
  get launched(): Promise<void> {
    return this.#launched.promise
  }

  /** Resolves with the exit reason when the program has ended and nothing of it is left. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** The end of its output, without secrets. */
  get output(): string {
    return this.#guard.output
  }

  /** From now on it does not keep our own process alive. */
  unref(): void {
    this.#guard.unref()
  }

  /** Ends all of it, with a grace. Resolves when it is gone. */
  async stop(): Promise<void> {
    await this.#guard.close()
    await this.#ended.promise
  }

  #receive(message: FromGuard): void {
    if (message.kind === 'launched') {
      this.#pid = message.pid
      this.#launched.resolve()
    } else if (message.kind === 'failed') {
      const { errno, message: text } = message
      this.#launched.reject(new LaunchError(this.#options.command[0] ?? '', errno, text))
    } else {
      this.#exitReason = message.signal ?? `exit code ${message.code}`
    }
  }

  /** The guard has exited: with its work done, or killed while the server still runs. */
  async #finish(isDone: boolean): Promise<void> {
    const pid = this.#pid
    const { clock } = this.#options
    if (!isDone && pid !== undefined) await endProgram(clock, { pid, mark: this.#mark }, 0)
    this.#launched.reject(new Error('the guard of the server has ended'))
    this.#ended.resolve(this.#exitReason ?? 'the end of its guard')
  }
}

/** A server program that cannot be started. */
export class LaunchError extends Error {
  override readonly name = 'LaunchError'
  readonly errno: string

  constructor(program: string, errno: string, message: string) {
    super(`the server program "${program}" cannot be started: ${errno}`, {
      cause: new Error(message),
    })
    this.errno = errno
  }
}
