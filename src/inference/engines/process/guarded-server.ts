/** A server program in a process group of its own that outlives neither its guard nor us. */

import { type ChildProcess, fork } from 'node:child_process'
import type { Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { boundedWait } from '../../../foundation/promises.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { inheritedEnvironment } from './child-environment.ts'
import type { FromGuard, ToGuard } from './guard-protocol.ts'
import { OutputTail } from './output-tail.ts'
import { endGroup } from './end-group.ts'

export interface GuardedServerOptions {
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Between SIGTERM and SIGKILL. */
  readonly graceMs: number
  readonly clock: Clock
  /** Each line of its output. */
  readonly onLine: (line: string) => void
}

const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
const program = fileURLToPath(new URL(`./guard.${extension}`, import.meta.url))
/** Its heap holds next to nothing. */
const nodeFlags = ['--v8-pool-size=1', '--max-old-space-size=64', '--no-warnings']
/** What a guard may take beyond the grace, and the last output after its end. */
const guardMs = 10_000
const lastOutputMs = 1000

/** Runs from its construction to `stop`. */
export class GuardedServer {
  readonly #options: GuardedServerOptions
  readonly #guard: ChildProcess
  readonly #tail: OutputTail
  readonly #launched = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<string>()
  readonly #guardGone = Promise.withResolvers<void>()
  #pid: number | undefined
  #end: string | undefined
  #stopping: Promise<void> | undefined

  constructor(options: GuardedServerOptions) {
    this.#options = options
    this.#tail = new OutputTail(options.onLine)
    this.#launched.promise.catch(() => {})
    this.#guard = fork(program, [], {
      execArgv: nodeFlags,
      env: inheritedEnvironment(process.env),
      // The terminal's Ctrl-C is for us to handle.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    })
    for (const stream of this.#output) {
      stream.setEncoding('utf8').on('data', (text: string) => this.#tail.feed(text))
    }
    this.#guard.on('message', (news) => this.#hear(news as FromGuard))
    this.#guard.on('error', (error) => {
      this.#launched.reject(error)
      if (this.#guard.pid === undefined) this.#finish()
    })
    this.#guard.on('exit', (code) => void this.#bury(code === 0))
    const { command, env, graceMs } = options
    this.#tell({ kind: 'launch', command, env, graceMs })
  }

  /** Resolves when the program runs. */
  get launched(): Promise<void> {
    return this.#launched.promise
  }

  /** Resolves with the manner when the program has ended and nothing of it is left. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** The end of its output. */
  get tail(): string {
    return this.#tail.text
  }

  /** From now on it does not keep our own process alive. */
  unref(): void {
    this.#guard.unref()
    this.#guard.channel?.unref()
    for (const stream of this.#output) stream.unref()
  }

  /** Ends the whole group, with a grace. Resolves when it is gone. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stopOnce()
    return this.#stopping
  }

  get #output(): readonly Socket[] {
    const { stdout, stderr } = this.#guard
    return [stdout, stderr].filter((stream) => stream !== null) as Socket[]
  }

  async #stopOnce(): Promise<void> {
    const { clock, graceMs } = this.#options
    this.#guard.ref()
    this.#tell({ kind: 'stop' })
    try {
      await boundedWait(clock, graceMs + guardMs, this.#guardGone.promise)
    } catch {
      this.#guard.kill('SIGKILL')
      await this.#guardGone.promise
    }
  }

  #tell(order: ToGuard): void {
    // One that cannot hear is dying; its exit tells the rest.
    if (this.#guard.connected) this.#guard.send(order, () => {})
  }

  #hear(news: FromGuard): void {
    if (news.kind === 'launched') {
      this.#pid = news.pid
      this.#launched.resolve()
    } else if (news.kind === 'failed') {
      this.#launched.reject(cannotLaunch(this.#options.command[0] ?? '', news))
    } else {
      this.#end = news.signal ?? `exit code ${news.code}`
    }
  }

  /** The guard has ended: with its work done, or killed with the server still running. */
  async #bury(isDone: boolean): Promise<void> {
    const { clock } = this.#options
    const closed = new Promise((resolve) => this.#guard.once('close', resolve))
    if (!isDone && this.#pid !== undefined) await endGroup(clock, this.#pid, 0)
    // Whoever left the group may hold the pipes open for as long as it likes.
    await boundedWait(clock, lastOutputMs, closed).catch(() => {})
    this.#finish()
  }

  #finish(): void {
    this.#launched.reject(inferenceError('engine_error', 'the guard of the server has ended'))
    this.#ended.resolve(this.#end ?? 'the end of its guard')
    this.#guardGone.resolve()
  }
}

function cannotLaunch(name: string, { errno, message }: FromGuard & { kind: 'failed' }): Error {
  const hint = errno === 'ENOENT' ? 'install it, or name its whole path in engine.command' : null
  return inferenceError(
    'engine_error',
    `the server program "${name}" cannot be started: ${errno}`,
    {
      cause: new Error(message),
      ...(hint === null ? {} : { hint }),
    },
  )
}
