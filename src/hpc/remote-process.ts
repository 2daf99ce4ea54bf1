/** A local process (`srun`, `ssh`, `mpirun`) that controls processes on other nodes. */

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import type { Clock } from '../foundation/clock.ts'
import { fulfillsWithin } from '../foundation/promises.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { once } from '../foundation/service.ts'
import { atExit } from '../runtime/at-exit.ts'

export interface RemoteProcessOptions {
  readonly command: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Written to the standard input, which stays open. */
  readonly input: string | Promise<string>
  readonly clock: Clock
  readonly onOutput?: (text: string) => void
}

const maxTailLength = 8192
/** How long the remote processes may take to exit before the local one is killed. */
const exitTimeoutMs = 15_000
const killTimeoutMs = 5000
const killIntervalMs = 250

/**
 * The constructor starts the process. If this Node process dies, the input of the remote processes
 * ends.
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
    // Detached, so that Ctrl-C in the terminal reaches only the script, which ends its tasks first.
    this.#child = spawn(program, args, { env, detached: true, stdio: 'pipe' })
    // Killed at exit, because `close` takes long if a node is unreachable.
    const forget = atExit(() => void this.#child.kill('SIGKILL'))
    void this.#ended.promise.then(forget)
    void this.#ended.promise.then(() => this.#cancelKill())
    this.#child.on('error', (error) => this.#ended.resolve(error.message))
    this.#child.on('close', (code, signal) => this.#ended.resolve(signal ?? `exit code ${code}`))
    // Ignores errors, because a process that has ended does not read its input.
    this.#child.stdin.on('error', () => {})
    // If the input rejects, the code that created it closes this process.
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

  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** The last part of stdout and stderr, with secrets masked. */
  get output(): string {
    return maskSecrets(this.#tail).trim()
  }

  write(text: string): void {
    if (this.#child.stdin.writable) this.#child.stdin.write(text)
  }

  /** Repeats SIGTERM until the process has ended, because `srun` ignores it while it starts. */
  kill(): void {
    this.#cancelKill()
    this.#child.kill('SIGTERM')
    this.#cancelKill = this.#clock.after(killIntervalMs, () => this.kill(), { background: true })
  }

  /** Closes the input, so that the remote processes exit. Idempotent. */
  readonly close = once(async (): Promise<void> => {
    this.#child.stdin.end()
    if (await fulfillsWithin(this.#clock, exitTimeoutMs, this.ended)) return
    this.#child.kill('SIGTERM')
    if (await fulfillsWithin(this.#clock, killTimeoutMs, this.ended)) return
    this.#child.kill('SIGKILL')
    await this.#ended.promise
  })
}
