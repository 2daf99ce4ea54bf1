/** Closes sessions when the process receives a signal. Sessions themselves install no handlers. */

import { constants } from 'node:os'
import { isatty } from 'node:tty'
import { isStartedByCommand } from '../checkpoint/run-file.ts'
import { systemClock } from '../foundation/clock.ts'
import { TuttiError } from '../foundation/errors.ts'
import { expectKnownKeys, expectNumber, expectObject, invalid } from '../foundation/options.ts'
import { TaskCanceledError } from '../foundation/task-errors.ts'

/** Which signals are handled, and how long closing may take. */
export interface CloseOnSignalsOptions {
  /** The signals to handle. Default: SIGINT, SIGTERM and SIGHUP. */
  readonly signals?: readonly NodeJS.Signals[]
  /** The process exits after this many seconds, even if closing is not complete. Default 20. */
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

/** Sessions that are being closed after a signal. The process exits when all are closed. */
const closing = new Set<Closable>()

/**
 * Closes a session or workflow engine at the first signal: open tasks are canceled, and the record
 * ends with SessionEnded. Then, or after `graceSeconds`, the process exits with 128 plus the
 * signal's number, such as 130 for SIGINT. At a second signal, the process exits immediately, but
 * the record still contains all emitted events. Without these handlers, a signal ends the process
 * immediately, and the latest events are lost. The returned function removes the handlers. Call it
 * after your own `await session.close()` if the program has more to do. After a signal, the program
 * then runs to its end and exits with the signal's exit code.
 *
 * @example
 * const session = new Session([await ConcurrentBackend.create()])
 * closeOnSignals(session)
 */
export function closeOnSignals(session: Closable, options: CloseOnSignalsOptions = {}): () => void {
  const close = toCloseMethod(session)
  const { signals, graceMs } = resolveCloseOnSignalsOptions(options)
  let first: { readonly signal: NodeJS.Signals; readonly ms: number } | null = null
  let isRemoved = false
  let cancelTimer = (): void => {}
  const onSignal = (signal: NodeJS.Signals): void => {
    const code = 128 + constants.signals[signal]
    const ms = systemClock.monotonicMs()
    if (first?.signal === signal && mayBeForwarded(signal) && ms - first.ms < forwardDelayMs) return
    if (first !== null) process.exit(code)
    first = { signal, ms }
    process.exitCode = code
    process.on('uncaughtException', ignoreCancellation)
    closing.add(session)
    cancelTimer = systemClock.after(graceMs, () => process.exit(code))
    const end = (): void => {
      closing.delete(session)
      // Waits one turn, so that code that awaits `close()` can first remove the handlers.
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

/** A forwarded copy of a signal arrives within this time. It does not count as a second signal. */
const forwardDelayMs = 1000

/**
 * Whether the command that runs this script may forward the signal. If so, a signal to the whole
 * process group arrives twice. The command does not forward SIGINT of a terminal, because the
 * terminal sends it to the whole group.
 */
const mayBeForwarded = (signal: NodeJS.Signals): boolean =>
  isStartedByCommand && (signal !== 'SIGINT' || !isatty(0))

function toCloseMethod(session: unknown): () => Promise<unknown> {
  const { close, shutdown } = (session ?? {}) as Partial<Record<string, () => Promise<unknown>>>
  const method = close ?? shutdown
  if (typeof method !== 'function') {
    const hint = 'Write `closeOnSignals(session)`.'
    throw invalid('session', 'a session or a workflow engine', session, hint)
  }
  return () => method.call(session)
}

/**
 * Ignores the errors of canceled tasks. A top-level `await task` rejects when closing cancels the
 * task, and this would end the process too early. Any other error ends the process as usual.
 */
function ignoreCancellation(error: unknown): void {
  const isExpected =
    error instanceof TaskCanceledError ||
    (TuttiError.isInstance(error) && error.code === 'SessionClosedError')
  if (isExpected) return
  systemClock.nextTurn(() => {
    process.off('uncaughtException', ignoreCancellation)
    throw error
  })
}

function resolveCloseOnSignalsOptions(options: CloseOnSignalsOptions) {
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
