/**
 * Runs a session from the command line: progress while it runs, a clean stop on a signal, and where
 * the record is when something unexpected happens.
 */

import { messageOf } from '../foundation/errors.ts'
import { closeOnSignals, followProgress, type Session, type TelemetryManager } from '../index.ts'
import { type StopSignal, stopSignals } from './exit.ts'
import type { Output } from './output.ts'

export interface LiveRunParts {
  readonly session: Session
  readonly telemetry: TelemetryManager
  readonly output: Output
}

/**
 * Runs `work` and closes the session whatever happens; resolves with the signal that ended it
 * early, if any. The first signal, or a closed output, closes it early; a second signal, or an
 * uncaught error, ends the process with everything emitted in the record.
 */
export async function runLive(
  { session, telemetry, output }: LiveRunParts,
  work: () => Promise<void>,
): Promise<StopSignal | null> {
  const { terminal } = output
  const stopProgress =
    terminal === null ? () => {} : followProgress(telemetry, { stream: terminal })
  const guard = new ProcessGuard(session, telemetry, output)
  const removeHandlers = closeOnSignals(session)
  try {
    await work()
  } catch (error) {
    if (guard.signal === null && !output.closed.aborted) throw error
  } finally {
    await session.close()
    removeHandlers()
    guard.release()
    stopProgress()
  }
  return guard.signal
}

/** Tells people about signals and uncaught errors, and closes the session with the output. */
class ProcessGuard {
  signal: StopSignal | null = null
  readonly #telemetry: TelemetryManager
  readonly #output: Output
  readonly #release: () => void

  constructor(session: Session, telemetry: TelemetryManager, output: Output) {
    this.#telemetry = telemetry
    this.#output = output
    const onSignal = (signal: StopSignal): void => this.#onSignal(signal)
    const onError = (error: unknown): void => this.#onError(error)
    const onClosed = (): void => void session.close()
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
    if (this.signal !== null) return
    this.signal = signal
    this.#output.problem(`${signal}: stopping cleanly; once more ends at once`)
  }

  #onError(error: unknown): void {
    this.#output.problem(
      `unexpected error: ${error instanceof Error ? error.stack : messageOf(error)}`,
    )
    const path = this.#telemetry.checkpointFile
    if (path !== null) this.#output.problem(`everything so far is in ${path}`)
    process.exit(1)
  }
}
