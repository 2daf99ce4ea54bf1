/** Following a job: showing its state, and handling stop signals. */

import { createInterface } from 'node:readline/promises'
import { TuttiError } from '../../foundation/errors.ts'
import { signalExitCodes, type StopSignal, stopSignals } from '../exit.ts'
import type { Output } from '../output.ts'

/** Shows a status line when it changes; `null` removes it, once the job prints output itself. */
export function createStatusLine(output: Output): (line: string | null) => void {
  let shown: string | null = ''
  return (line) => {
    if (line !== shown) output.progress(line === null ? [] : [line])
    shown = line
  }
}

const maxNamed = 4

/** Prints on a terminal where a job runs, because the script itself may print nothing. */
export function createBeginLine(
  output: Output,
): ((jobId: string, nodes: readonly string[]) => void) | undefined {
  if (!process.stderr.isTTY || output.form !== 'text') return undefined
  return (jobId, nodes) => {
    const ends = `${nodes[0]} to ${nodes.at(-1)} (${nodes.length} nodes)`
    const where = nodes.length > maxNamed ? ends : nodes.join(', ')
    output.problem(`job ${jobId} runs on ${where}`)
  }
}

export interface InterruptionOptions {
  /** Default: the job continues, unless the user at the terminal chooses to cancel it. */
  readonly cancelOnSignal?: boolean
}

/** Handles stop signals while a job is followed: it continues unless canceling is requested. */
export class Interruption {
  isCancel: boolean
  exitCode = 0
  /** The job that is followed. */
  jobId: string
  readonly #controller = new AbortController()
  readonly #onSignal = (signal: StopSignal): void => void this.#take(signal)
  readonly #output: Output
  #isAsking = false

  constructor(jobId: string, { cancelOnSignal = false }: InterruptionOptions, output: Output) {
    this.jobId = jobId
    this.#output = output
    this.isCancel = cancelOnSignal
    for (const signal of stopSignals) process.on(signal, this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** After a signal: prints the error and returns the exit code. Otherwise rethrows the error. */
  codeAfter(error: unknown): number {
    if (this.exitCode === 0 || !TuttiError.isInstance(error)) throw error
    this.#output.failure(error)
    return this.exitCode
  }

  /** Also ends a pending question. */
  release(): void {
    for (const signal of stopSignals) process.off(signal, this.#onSignal)
    this.#controller.abort()
  }

  async #take(signal: StopSignal): Promise<void> {
    this.exitCode = signalExitCodes[signal]
    const isTerminal = process.stdin.isTTY && process.stderr.isTTY
    if (this.#isAsking) this.isCancel = true
    else if (signal === 'SIGINT' && isTerminal && !this.isCancel) await this.#ask()
    this.#controller.abort()
  }

  async #ask(): Promise<void> {
    this.#isAsking = true
    const what = this.jobId === '' ? 'the job' : `job ${this.jobId}`
    this.#output.problem(`${what}: detach, or cancel it? [D/c] (Ctrl-C cancels)`)
    const lines = createInterface({ input: process.stdin })
    const { promise, resolve: answer } = Promise.withResolvers<string>()
    lines.once('line', answer)
    lines.once('close', () => answer(''))
    this.signal.addEventListener('abort', () => lines.close())
    if (/^c/i.test((await promise).trim())) this.isCancel = true
    lines.close()
  }
}
