/** Warnings about problems that no caller awaits. The library itself prints nothing. */

import { expectMethods } from './options.ts'

/** Receives warnings. `code` is stable; `message` is for users. */
export interface Log {
  /** Receives one warning. */
  warn(code: string, message: string): void
}

/** Emits Node's process warnings: printed on stderr, observable with `process.on('warning')`. */
export const processLog: Log = {
  warn(code, message) {
    process.emitWarning(message, { type: 'TuttiWarning', code })
  },
}

/**
 * The log of an application, or `processLog`. Ignores errors that the application's log throws,
 * because a warning must not prevent a task from ending.
 */
export function resolveLog(log: Log = processLog): Log {
  expectMethods('log', log, ['warn'])
  if (log === processLog) return log
  const known = guarded.get(log)
  if (known !== undefined) return known
  const added: Log = {
    warn(code, message) {
      try {
        log.warn(code, message)
      } catch {
        // There is nowhere else to report it.
      }
    },
  }
  guarded.set(log, added).set(added, added)
  return added
}

/** One guarded log per log, because some warnings are emitted once per log object. */
const guarded = new WeakMap<Log, Log>()
