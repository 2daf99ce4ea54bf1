/** A local process (`srun`, `ssh`, `mpirun`) that represents processes on other nodes. */

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import type { Clock } from '../foundation/clock.ts'
import { boundedWait } from '../foundation/promises.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { once } from '../foundation/service.ts'
import { atExit } from '../runtime/at-exit.ts'

export interface RemoteProcessOptions {
  readonly command: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Written to its standard input when the promise resolves. The input stays open. */
  readonly input: string | Promise<string>
  readonly clock: Clock
  /** Called with its standard output, whose end is also kept in `output`. */
  readonly onOutput?: (text: string) => void
}

const maxTailLength = 8192
/** How long the processes on the nodes may take to end before the local one is killed. */
const graceMs = 15_000
const killedMs = 5000
/** The time between two SIGTERMs. */
const askAgainMs = 250

/**
 * The constructor starts the process. If the calling process dies, the remote processes see the end
 * of their input.
 */
export class RemoteProcess {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #clock: Clock
  readonly #ended = Promise.withResolvers<string>()
  #tail = ''
  #cancelKill: () => void = () => {}

  constructor({ command, env, input, clock, onOutput }: RemoteProcessOptions) {
    const [program = '', ...args] = command
    this.#clock = clock
    // In a session of its own: Ctrl-C in the terminal is for the script, which ends its tasks
    // first.
    this.#child = spawn(program, args, { env, detached: true, stdio: 'pipe' })
    // Killed at exit: if a node is unreachable, closing may take longer than a session waits.
    const forget = atExit(() => void this.#child.kill('SIGKILL'))
    void this.#ended.promise.then(forget)
    void this.#ended.promise.then(() => this.#cancelKill())
    this.#child.on('error', (error) => this.#ended.resolve(error.message))
    this.#child.on('close', (code, signal) => this.#ended.resolve(signal ?? `exit code ${code}`))
    // A process that has ended does not read its input.
    this.#child.stdin.on('error', () => {})
    // If the input cannot be created, its creator closes this process.
    Promise.resolve(input).then(
      (text) => this.write(text),
      () => {},
    )
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#tail = (this.#tail + text).slice(-maxTailLength)
        if (stream === this.#child.stdout) onOutput?.(text)
      })
    }
  }

  /** Resolves with the reason when the local and the remote processes have ended. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** The end of its output, with secrets masked. */
  get output(): string {
    return maskSecrets(this.#tail).trim()
  }

  /** Writes to its standard input. */
  write(text: string): void {
    if (this.#child.stdin.writable) this.#child.stdin.write(text)
  }

  /** Sends SIGTERM until the process has ended, because `srun` ignores a signal while it starts. */
  kill(): void {
    this.#cancelKill()
    this.#child.kill('SIGTERM')
    this.#cancelKill = this.#clock.after(askAgainMs, () => this.kill(), { background: true })
  }

  /**
   * Closes the input, so that the remote processes exit; kills the local process after a grace
   * period. Idempotent: returns the same promise each time.
   */
  readonly close = once(async (): Promise<void> => {
    this.#child.stdin.end()
    if (await this.#endsWithin(graceMs)) return
    this.#child.kill('SIGTERM')
    if (await this.#endsWithin(killedMs)) return
    this.#child.kill('SIGKILL')
    await this.#ended.promise
  })

  #endsWithin(ms: number): Promise<boolean> {
    return boundedWait(this.#clock, ms, this.#ended.promise).then(
      () => true,
      () => false,
    )
  }
}
