/**
 * Runs a session from the command line: shows progress, stops cleanly on a signal, and prints where
 * the record is after an unexpected error.
 */

import { messageOf } from '../foundation/errors.ts'
import type { Session, TelemetryManager } from '../index.ts'
import { showProgress } from '../telemetry/progress/follow-progress.ts'
import { signalExitCodes, type StopSignal, stopSignals } from './exit.ts'
import type { Output } from './output.ts'

export interface LiveRunParts {
  readonly session: Session
  readonly telemetry: TelemetryManager
  readonly output: Output
  /** Seconds between progress lines if the output is not a terminal. Default 10. */
  readonly lineSeconds?: number
  /** Printed when the process ends before the session is closed. */
  readonly resumeLine?: string
}

/**
 * Runs `work` and always closes the session; resolves with the signal that ended it early, if any.
 * The first signal, or a closed output, closes it early. A second signal, or an uncaught error,
 * ends the process; everything emitted is then in the record.
 */
export async function runLive(
  parts: LiveRunParts,
  work: () => Promise<void>,
): Promise<StopSignal | null> {
  const { session, telemetry, output, lineSeconds } = parts
  const { terminal } = output
  const stopProgress = terminal === null ? () => {} : showProgress(telemetry, terminal, lineSeconds)
  const guard = new ProcessGuard(parts)
  try {
    await work()
  } catch (error) {
    if (guard.signal === null && !output.closed.aborted) throw error
  } finally {
    await session.close()
    guard.release()
    stopProgress()
  }
  return guard.signal
}

/** Reports signals and uncaught errors, and closes the session when the output is closed. */
class ProcessGuard {
  signal: StopSignal | null = null
  readonly #parts: LiveRunParts
  readonly #release: () => void

  constructor(parts: LiveRunParts) {
    const { output } = parts
    this.#parts = parts
    const onSignal = (signal: StopSignal): void => this.#onSignal(signal)
    const onError = (error: unknown): void => this.#onError(error)
    const onClosed = (): void => this.#close()
    for (const signal of stopSignals) process.on(signal, onSignal)
    process.on('uncaughtException', onError)
    output.closed.addEventListener('abort', onClosed)
    if (output.closed.aborted) onClosed()
    this.#release = () => {
      for (const signal of stopSignals) process.off(signal, onSignal)
      process.off('uncaughtException', onError)
      output.closed.removeEventListener('abort', onClosed)
    }
  }

  release(): void {
    this.#release()
  }

  #onSignal(signal: StopSignal): void {
    if (this.signal !== null) {
      this.#tellResume()
      process.exit(signalExitCodes[signal])
    }
    this.signal = signal
    this.#parts.output.problem(`${signal}: stopping cleanly; a second signal stops at once`)
    this.#close()
  }

  /** Does not end the process: the caller decides on the exit code. */
  #close(): void {
    // `runLive` awaits the same close and handles its error.
    this.#parts.session.close().catch(() => {})
  }

  #onError(error: unknown): void {
    const { telemetry, output } = this.#parts
    output.problem(`unexpected error: ${error instanceof Error ? error.stack : messageOf(error)}`)
    const path = telemetry.checkpointFile
    if (path !== null) output.problem(`everything so far is in ${path}`)
    this.#tellResume()
    process.exit(1)
  }

  #tellResume(): void {
    const { output, resumeLine } = this.#parts
    if (resumeLine !== undefined) output.problem(resumeLine)
  }
}
