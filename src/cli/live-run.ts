/**
 * Runs a session from the command line: shows progress, stops cleanly on a signal, and prints where
 * the record is after an unexpected error.
 */

import { messageOf } from '../foundation/errors.ts'
import type { Session, TelemetryManager } from '../index.ts'
import { showProgress } from '../telemetry/progress/follow-progress.ts'
import { onStopSignals, signalExitCodes, type StopSignal } from './exit.ts'
import type { Output } from './output.ts'

export interface LiveRunParts {
  readonly session: Session
  readonly telemetry: TelemetryManager
  readonly output: Output
  /** Seconds between progress lines if the output is not a terminal. Default 10. */
  readonly progressIntervalSeconds?: number
  /** Printed if the process exits before the session is closed. */
  readonly resumeLine?: string
}

/**
 * Runs `work` and then closes the session. The session is closed early at the first stop signal, or
 * if the output is closed. Resolves with the signal, or with `null` if there was none. A second
 * signal or an uncaught error exits the process.
 */
export async function runLive(
  parts: LiveRunParts,
  work: () => Promise<void>,
): Promise<StopSignal | null> {
  const { session, telemetry, output, progressIntervalSeconds, resumeLine } = parts
  const { terminal } = output
  const stopProgress =
    terminal === null ? () => {} : showProgress(telemetry, terminal, progressIntervalSeconds)
  const printResume = (): void => {
    if (resumeLine !== undefined) output.problem(resumeLine)
  }
  let stoppedBy: StopSignal | null = null
  const onFirst = (signal: StopSignal | null): void => {
    stoppedBy ??= signal
    if (signal !== null) {
      output.problem(`${signal}: stopping cleanly; a second signal stops immediately`)
    }
    // `close()` below returns the same promise, so its error is handled there.
    session.close().catch(() => {})
  }
  const signals = onStopSignals(output.closed, onFirst, (signal) => {
    printResume()
    process.exit(signalExitCodes[signal])
  })
  const onError = (error: unknown): void => {
    output.problem(`unexpected error: ${error instanceof Error ? error.stack : messageOf(error)}`)
    const path = telemetry.checkpointFile
    if (path !== null) output.problem(`everything so far is in ${path}`)
    printResume()
    process.exit(1)
  }
  process.on('uncaughtException', onError)
  try {
    await work()
  } catch (error) {
    if (stoppedBy === null && !output.closed.aborted) throw error
  } finally {
    await session.close()
    signals.release()
    process.off('uncaughtException', onError)
    stopProgress()
  }
  return stoppedBy
}
