/**
 * A server program on this machine that ends, with its child processes, when its guard or this
 * process ends. Also provides what every server on a node needs: a free port and an environment
 * without secrets.
 */

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { endProgram } from '../process-group.ts'
import { newChannelId, siblingProgram, SupervisedChild } from '../supervised-child.ts'
import type { GuardMessage, GuardCommand } from './guard.ts'
import type { ServerAddress, ServerProcess } from './node-servers.ts'

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

interface LocalServerOptions {
  readonly host: string
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** The complete environment of the server. Nothing else is inherited. */
  readonly env: Readonly<Record<string, string>>
  /** The environment of the guard process, which ends the server when this process ends. */
  readonly guardEnv: Readonly<Record<string, string>>
  readonly clock: Clock
  readonly onLine: (line: string) => void
}

const graceMs = 10_000

export function startLocalServer(options: LocalServerOptions): ServerProcess {
  const { host, toCommand, ...rest } = options
  let server: GuardedServer | undefined
  let isStopped = false
  const { launched, ended } = runServer(async (launch) => {
    const address = { host, port: await findFreePort(host) }
    if (isStopped) throw new Error('it was stopped')
    server = new GuardedServer({ ...rest, command: toCommand(address), graceMs })
    server.launched.then(() => launch.resolve(address), launch.reject)
    return server.ended
  })
  return {
    launched,
    ended,
    get output() {
      return server?.output ?? ''
    },
    unref: () => server?.unref(),
    async stop() {
      isStopped = true
      await server?.stop()
      await ended
    },
  }
}

type Launch = PromiseWithResolvers<ServerAddress>

/**
 * Calls `run` immediately. `run` must settle `launch` when the program runs or cannot be started,
 * and resolve with the reason when the program has ended. If `run` throws, both promises report the
 * error.
 */
export function runServer(
  run: (launch: Launch) => Promise<string>,
): Pick<ServerProcess, 'launched' | 'ended'> {
  const launch: Launch = Promise.withResolvers()
  // A server that is stopped before `launched` is awaited must not cause an unhandled rejection.
  launch.promise.catch(() => {})
  const ended = run(launch).catch((error: unknown) => {
    launch.reject(error)
    return messageOf(error)
  })
  return { launched: launch.promise, ended }
}

/**
 * The range of ports. Systems do not assign these ports automatically, so that a chosen port stays
 * free while a server loads its model for minutes.
 */
const portRange = { min: 10_000, max: 32_000 }
const maxTries = 100

/**
 * Finds a free port. If another process takes the port first, the server cannot start, and its
 * worker is restarted with another port.
 */
export async function findFreePort(host: string): Promise<number> {
  for (let tries = 0; tries < maxTries; tries++) {
    try {
      return await probePort(randomInt(portRange.min, portRange.max), host)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
  return await probePort(0, host)
}

/**
 * Resolves with the port if it can be used; otherwise rejects. For 0, the system chooses a port.
 */
async function probePort(port: number, host: string): Promise<number> {
  const probe = createServer()
  probe.listen(port, host)
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  return typeof address === 'object' && address !== null ? address.port : port
}

/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>

const inherited = new Set(
  'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH XDG_CACHE_HOME'
    .concat(' HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE OMP_NUM_THREADS')
    .split(' '),
)
const inheritedFamily = /^(?:CUDA|NVIDIA|NCCL|ROCR|HIP|LC)_/
const secretName = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL/

/** Returns the variables that server programs inherit. Never returns secrets. */
export function inheritedEnvironment(environment: Environment): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || secretName.test(name)) continue
    if (inherited.has(name) || inheritedFamily.test(name)) kept[name] = value
  }
  return kept
}
