/** Shows the state of a job, and handles stop signals while the job is followed. */

import { createInterface } from 'node:readline/promises'
import { TuttiError } from '../../foundation/errors.ts'
import { signalExitCodes, type StopSignal, stopSignals } from '../exit.ts'
import type { Output } from '../output.ts'

/** Shows a status line when it changes. `null` removes the line. */
export function createStatusLine(output: Output): (line: string | null) => void {
  let shown: string | null = ''
  return (line) => {
    if (line !== shown) output.progress(line === null ? [] : [line])
    shown = line
  }
}

const maxNamedNodes = 4

/**
 * Returns a function that prints the nodes of a job when it starts, because the script may print
 * nothing. Returns `undefined` if there is no terminal.
 */
export function createStartNotice(
  output: Output,
): ((jobId: string, nodes: readonly string[]) => void) | undefined {
  if (!process.stderr.isTTY || output.form !== 'text') return undefined
  return (jobId, nodes) => {
    const ends = `${nodes[0]} to ${nodes.at(-1)} (${nodes.length} nodes)`
    const nodesText = nodes.length > maxNamedNodes ? ends : nodes.join(', ')
    output.problem(`job ${jobId} runs on ${nodesText}`)
  }
}

export interface InterruptionOptions {
  /**
   * Whether a stop signal cancels the job. By default, only the user at the terminal can cancel it.
   */
  readonly cancelOnSignal?: boolean
}

/** Handles stop signals while a job is followed. The job continues unless the user cancels it. */
export class Interruption {
  shouldCancel: boolean
  exitCode = 0
  jobId: string
  readonly #controller = new AbortController()
  readonly #onSignal = (signal: StopSignal): void => void this.#handleSignal(signal)
  readonly #output: Output
  #isAsking = false

  constructor(jobId: string, { cancelOnSignal = false }: InterruptionOptions, output: Output) {
    this.jobId = jobId
    this.#output = output
    this.shouldCancel = cancelOnSignal
    for (const signal of stopSignals) process.on(signal, this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** After a signal, prints the error and returns the exit code. Otherwise rethrows the error. */
  exitCodeFor(error: unknown): number {
    if (this.exitCode === 0 || !TuttiError.isInstance(error)) throw error
    this.#output.failure(error)
    return this.exitCode
  }

  /** Stops handling signals, and withdraws a question that the user has not answered. */
  release(): void {
    for (const signal of stopSignals) process.off(signal, this.#onSignal)
    this.#controller.abort()
  }

  async #handleSignal(signal: StopSignal): Promise<void> {
    this.exitCode = signalExitCodes[signal]
    const isTerminal = process.stdin.isTTY && process.stderr.isTTY
    if (this.#isAsking) this.shouldCancel = true
    else if (signal === 'SIGINT' && isTerminal && !this.shouldCancel) await this.#askUser()
    this.#controller.abort()
  }

  async #askUser(): Promise<void> {
    this.#isAsking = true
    const jobText = this.jobId === '' ? 'the job' : `job ${this.jobId}`
    this.#output.problem(`${jobText}: detach, or cancel it? [D/c] (Ctrl-C cancels)`)
    const lines = createInterface({ input: process.stdin })
    const { promise, resolve: answer } = Promise.withResolvers<string>()
    lines.once('line', answer)
    lines.once('close', () => answer(''))
    this.signal.addEventListener('abort', () => lines.close())
    if (/^c/i.test((await promise).trim())) this.shouldCancel = true
    lines.close()
  }
}
