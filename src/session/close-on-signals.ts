/** Closes sessions when a signal asks the process to end. Opt-in: sessions install no handlers. */

import { constants } from 'node:os'
import { isatty } from 'node:tty'
import { isRunByCommand } from '../checkpoint/run-file.ts'
import { systemClock } from '../foundation/clock.ts'
import { TuttiError } from '../foundation/errors.ts'
import { expectKnownKeys, expectNumber, expectObject, invalid } from '../foundation/options.ts'
import { TaskCanceledError } from '../foundation/task-errors.ts'

/** Options of `closeOnSignals`. */
export interface CloseOnSignalsOptions {
  /** Default: SIGINT, SIGTERM and SIGHUP. */
  readonly signals?: readonly NodeJS.Signals[]
  /** The process exits after this many seconds even if closing is not complete. Default 20. */
  readonly graceSeconds?: number
}

/** A session, a workflow engine, or any other object with one of these methods. */
export type Closable =
  | {
      /** The method of a session. */
      close(): Promise<unknown>
    }
  | {
      /** The method of a workflow engine. */
      shutdown(): Promise<unknown>
    }

/** Sessions and engines being closed after a signal. The process exits when all are closed. */
const closing = new Set<Closable>()

/**
 * Closes a session or workflow engine at the first signal: open tasks are canceled, and the record
 * ends with SessionEnded. Then, or after `graceSeconds`, the process exits with 128 plus the
 * signal's number, such as 130 for SIGINT. At a second signal, the process exits immediately, but
 * the record still contains all emitted events. Without these handlers, a signal ends the process
 * immediately, and the latest events are lost.
 *
 * The returned function removes the handlers. Call it after your own `await session.close()` if the
 * program has more to do. The process then exits when it is done, with the signal's exit code.
 *
 * @example
 * const session = new Session([await ConcurrentBackend.create()])
 * closeOnSignals(session)
 */
export function closeOnSignals(session: Closable, options: CloseOnSignalsOptions = {}): () => void {
  const close = toClose(session)
  const { signals, graceMs } = resolveCloseOnSignalsOptions(options)
  let begun: { readonly signal: NodeJS.Signals; readonly ms: number } | null = null
  let isRemoved = false
  let cancelTimer = (): void => {}
  const onSignal = (signal: NodeJS.Signals): void => {
    const code = 128 + constants.signals[signal]
    const ms = systemClock.monotonicMs()
    if (begun?.signal === signal && mayBePassedOn(signal) && ms - begun.ms < passedOnMs) return
    if (begun !== null) process.exit(code)
    begun = { signal, ms }
    process.exitCode = code
    process.on('uncaughtException', ignoreCancellation)
    closing.add(session)
    cancelTimer = systemClock.after(graceMs, () => process.exit(code))
    const end = (): void => {
      closing.delete(session)
      // Waits one turn, so that other code that awaits `close()` can remove the handlers first.
      systemClock.nextTurn(() => {
        if (!isRemoved && closing.size === 0) process.exit(code)
      })
    }
    close().then(end, end)
  }
  for (const signal of signals) process.on(signal, onSignal)
  return () => {
    isRemoved = true
    cancelTimer()
    process.off('uncaughtException', ignoreCancellation)
    for (const signal of signals) process.off(signal, onSignal)
  }
}

/** A forwarded signal that arrives within this time does not count as a second signal. */
const passedOnMs = 1000

/**
 * Whether the command that runs this script may forward the signal. A signal to the whole process
 * group, such as that of `timeout`, then arrives twice. SIGINT of a terminal is not forwarded,
 * because the terminal sends it to the whole group.
 */
const mayBePassedOn = (signal: NodeJS.Signals): boolean =>
  isRunByCommand && (signal !== 'SIGINT' || !isatty(0))

function toClose(session: unknown): () => Promise<unknown> {
  const { close, shutdown } = (session ?? {}) as Partial<Record<string, () => Promise<unknown>>>
  const method = close ?? shutdown
  if (typeof method !== 'function') {
    const hint = 'Write `closeOnSignals(session)`: what it closes is the session.'
    throw invalid('session', 'a session or a workflow engine', session, hint)
  }
  return () => method.call(session)
}

/**
 * Ignores the errors of canceled tasks: a top-level `await task` rejects when closing cancels the
 * task, which would end the process too early. Any other error ends the process as usual.
 */
function ignoreCancellation(error: unknown): void {
  const isOfClosing =
    error instanceof TaskCanceledError ||
    (TuttiError.isInstance(error) && error.code === 'SessionClosedError')
  if (isOfClosing) return
  systemClock.nextTurn(() => {
    process.off('uncaughtException', ignoreCancellation)
    throw error
  })
}

function resolveCloseOnSignalsOptions(options: CloseOnSignalsOptions): {
  readonly signals: readonly NodeJS.Signals[]
  readonly graceMs: number
} {
  expectObject('options', options)
  expectKnownKeys('closeOnSignals', options, ['signals', 'graceSeconds'])
  const { signals = ['SIGINT', 'SIGTERM', 'SIGHUP'], graceSeconds = 20 } = options
  if (!Array.isArray(signals)) throw invalid('signals', 'a list of signals', signals)
  signals.forEach((signal: string, at) => {
    const isKnown = Object.hasOwn(constants.signals, signal)
    if (!isKnown || uncatchable.has(signal)) {
      throw invalid(`signals[${at}]`, 'a signal that can be handled, such as "SIGTERM"', signal)
    }
  })
  const range = { min: 0, max: 86_400 }
  return { signals, graceMs: expectNumber('graceSeconds', graceSeconds, range) * 1000 }
}

const uncatchable = new Set(['SIGKILL', 'SIGSTOP'])
