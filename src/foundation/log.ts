/** Warnings about problems that no caller awaits. The library itself prints nothing. */

import { tryRead } from './errors.ts'
import { expectMethods } from './options.ts'

/** Receives warnings. `code` is stable; `message` is for users. */
export interface Log {
  /** Receives one warning. */
  warn(code: string, message: string): void
}

/** Calls `process.emitWarning`. Node prints the warnings on stderr and emits them on `process`. */
export const processLog: Log = {
  warn(code, message) {
    process.emitWarning(message, { type: 'TuttiWarning', code })
  },
}

/** Wraps a log to ignore its errors, because a warning must not prevent a task from ending. */
export function resolveLog(log: Log = processLog): Log {
  expectMethods('log', log, ['warn'])
  if (log === processLog) return log
  const known = guardedLogs.get(log)
  if (known !== undefined) return known
  const added: Log = {
    // There is nowhere else to report an error of the log.
    warn: (code, message) => tryRead(() => log.warn(code, message)),
  }
  guardedLogs.set(log, added).set(added, added)
  return added
}

/** One guarded log per application log, because some warnings are emitted once per log. */
const guardedLogs = new WeakMap<Log, Log>()
