/**
 * Runs a session from the command line: progress while it runs, a clean stop on a signal, and what
 * the summary is made of.
 */

import { systemClock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Session, TelemetryManager } from '../index.ts'
import { Pass } from '../views/pass.ts'
import { signalExitCodes, type StopSignal, stopSignals } from './exit.ts'
import type { Output } from './output.ts'
import { progressLines, progressPanels, type ProgressPass } from './progress.ts'

export interface LiveRunParts {
  readonly session: Session
  readonly telemetry: TelemetryManager
  readonly output: Output
  /** Short on a terminal, which is redrawn; elsewhere each drawing is a further line. */
  readonly redrawMs: number
}

export interface LiveRunEnd {
  readonly pass: ProgressPass
  /** The signal that ended it early, if any. */
  readonly signal: StopSignal | null
}

/**
 * Runs `work` and closes the session whatever happens. The first signal, or a closed output, closes
 * it early; a second signal, or an uncaught error, writes what telemetry has and ends the process.
 */
export async function runLive(
  { session, telemetry, output, redrawMs }: LiveRunParts,
  work: () => Promise<void>,
): Promise<LiveRunEnd> {
  const pass = new Pass(progressPanels)
  telemetry.subscribe((event) => pass.take(event))
  const backends = session.backends.map(({ name }) => name).join(', ')
  const head = `session ${session.id}  backends ${backends}`
  const draw = (): void =>
    output.progress([head, ...progressLines(pass, systemClock.now(), output.width)])
  const stopDrawing = every(redrawMs, draw)
  const guard = new ProcessGuard(session, telemetry, output)
  try {
    await work()
  } catch (error) {
    if (guard.signal === null && !output.closed.aborted) throw error
  } finally {
    stopDrawing()
    await session.close()
    guard.release()
    draw()
  }
  return { pass, signal: guard.signal }
}

function every(ms: number, act: () => void): () => void {
  let cancel = (): void => {}
  const tick = (): void => {
    act()
    cancel = systemClock.after(ms, tick, { background: true })
  }
  cancel = systemClock.after(ms, tick, { background: true })
  return () => cancel()
}

/** Handles the process's signals, uncaught errors and closed output for the session. */
class ProcessGuard {
  signal: StopSignal | null = null
  readonly #session: Session
  readonly #telemetry: TelemetryManager
  readonly #output: Output
  readonly #release: () => void

  constructor(session: Session, telemetry: TelemetryManager, output: Output) {
    this.#session = session
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
    if (this.signal !== null) {
      this.#flushNow()
      process.exit(signalExitCodes[signal])
    }
    this.signal = signal
    this.#output.problem(`${signal}: stopping cleanly; once more ends at once`)
    void this.#session.close()
  }

  #onError(error: unknown): void {
    this.#flushNow()
    this.#output.problem(
      `unexpected error: ${error instanceof Error ? error.stack : messageOf(error)}`,
    )
    const path = this.#telemetry.checkpointFile
    if (path !== null) this.#output.problem(`everything so far is in ${path}`)
    process.exit(1)
  }

  /** `flush` writes before it returns; its promise only reports a failure. */
  #flushNow(): void {
    this.#telemetry.flush().catch(() => {})
  }
}
