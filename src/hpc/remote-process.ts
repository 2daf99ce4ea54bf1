/** A local process (`srun`, `ssh`) that stands for processes on other nodes. */

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import type { Clock } from '../foundation/clock.ts'
import { boundedWait } from '../foundation/promises.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { atExit } from '../runtime/at-exit.ts'

export interface RemoteProcessOptions {
  readonly command: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Written to its standard input once it is known; that stays open. */
  readonly input: string | Promise<string>
  readonly clock: Clock
  /** What it writes to its standard output, besides. */
  readonly onOutput?: (text: string) => void
}

const longestTail = 8192
/** What the processes on the nodes have for their own ends, before the local one is killed. */
const graceMs = 15_000
const killedMs = 5000
/** Between two requests to end. */
const askAgainMs = 250

/** Runs from its construction. Its far ends see the end of their input when this process dies. */
export class RemoteProcess {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #clock: Clock
  readonly #ended = Promise.withResolvers<string>()
  #tail = ''
  #cancelKill: () => void = () => {}
  #closing: Promise<void> | null = null

  constructor({ command, env, input, clock, onOutput }: RemoteProcessOptions) {
    const [program = '', ...args] = command
    this.#clock = clock
    // A session of its own: the terminal's Ctrl-C is for the script, which ends its tasks first.
    this.#child = spawn(program, args, { env, detached: true, stdio: 'pipe' })
    // A session waits some seconds for its end, which one for an unreachable node may exceed.
    const forget = atExit(() => void this.#child.kill('SIGKILL'))
    void this.#ended.promise.then(forget)
    void this.#ended.promise.then(() => this.#cancelKill())
    this.#child.on('error', (error) => this.#ended.resolve(error.message))
    this.#child.on('close', (code, signal) => this.#ended.resolve(signal ?? `exit code ${code}`))
    // Whoever has ended does not read.
    this.#child.stdin.on('error', () => {})
    // Whoever makes the input ends this process when it cannot.
    Promise.resolve(input).then(
      (text) => this.write(text),
      () => {},
    )
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#tail = (this.#tail + text).slice(-longestTail)
        if (stream === this.#child.stdout) onOutput?.(text)
      })
    }
  }

  /** Resolves with the reason when it and its far ends have ended. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** The end of what it wrote, without secrets. */
  get output(): string {
    return maskSecrets(this.#tail).trim()
  }

  /** Adds to its standard input. */
  write(text: string): void {
    if (this.#child.stdin.writable) this.#child.stdin.write(text)
  }

  /** Asks it to end its far ends and itself, until it has: `srun` loses a signal as it starts. */
  kill(): void {
    this.#cancelKill()
    this.#child.kill('SIGTERM')
    this.#cancelKill = this.#clock.after(askAgainMs, () => this.kill(), { background: true })
  }

  /** Ends its input, which its far ends understand; then kills it. Idempotent, same promise. */
  close(): Promise<void> {
    this.#closing ??= this.#closeOnce()
    return this.#closing
  }

  async #closeOnce(): Promise<void> {
    this.#child.stdin.end()
    if (await this.#endsWithin(graceMs)) return
    this.#child.kill('SIGTERM')
    if (await this.#endsWithin(killedMs)) return
    this.#child.kill('SIGKILL')
    await this.#ended.promise
  }

  #endsWithin(ms: number): Promise<boolean> {
    return boundedWait(this.#clock, ms, this.#ended.promise).then(
      () => true,
      () => false,
    )
  }
}
