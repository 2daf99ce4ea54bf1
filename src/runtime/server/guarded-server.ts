/** A server program that ends, with its child processes, when its guard or this process ends. */

import type { Clock } from '../../foundation/clock.ts'
import { endProgram } from '../process-group.ts'
import { newChannelId, siblingProgram, SupervisedChild } from '../supervised-child.ts'
import type { GuardMessage, GuardCommand } from './guard.ts'

export interface GuardedServerOptions {
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** The environment of the guard process, which ends the server when this process is gone. */
  readonly guardEnv: Readonly<Record<string, string>>
  readonly graceMs: number
  readonly clock: Clock
  /**
   * The folder that the guard removes when the program has ended, even if this process was killed.
   */
  readonly folder?: string
  /**
   * Whether to keep the folder for the next server if the program exits by itself. Default `false`.
   */
  readonly isFolderKept?: boolean
  readonly onLine: (line: string) => void
}

/** Limits the heap of the guard, which needs little memory. */
const nodeFlags = ['--v8-pool-size=1', '--max-old-space-size=64', '--no-warnings']
/** Shares Node's compile cache with the guard, which then starts in half the time. */
const compileCache = (): Record<string, string> => {
  const { NODE_COMPILE_CACHE: folder } = process.env
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: folder }
}
/** How long a guard may take in addition to the grace period of its server. */
const guardExitMs = 10_000

/** A server that runs from construction until `stop`. */
export class GuardedServer {
  readonly #options: GuardedServerOptions
  readonly #guard: SupervisedChild<GuardCommand, GuardMessage>
  readonly #launched = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<string>()
  readonly #mark = `${process.pid}-${newChannelId()}`
  #pid: number | undefined
  #exitReason: string | undefined

  constructor(options: GuardedServerOptions) {
    this.#options = options
    const { command, env, guardEnv, graceMs, clock, folder = null, isFolderKept = false } = options
    this.#launched.promise.catch(() => {})
    this.#guard = new SupervisedChild<GuardCommand, GuardMessage>({
      program: siblingProgram(import.meta.url, 'guard'),
      clock,
      execArgv: nodeFlags,
      env: { ...guardEnv, ...compileCache() },
      isDetached: true,
      stdout: 'capture',
      stderr: 'capture',
      graceMs: graceMs + guardExitMs,
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

  get launched(): Promise<void> {
    return this.#launched.promise
  }

  /** Resolves with the exit reason when the program and all its child processes have ended. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  get output(): string {
    return this.#guard.output
  }

  unref(): void {
    this.#guard.unref()
  }

  /**
   * Ends the program and its child processes with a grace period. Resolves when all have exited.
   */
  async stop(): Promise<void> {
    await this.#guard.close()
    await this.#ended.promise
  }

  #receive(message: GuardMessage): void {
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

  /** If the guard was killed, the server is still running and is ended here. */
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
