/** Warnings about things that no caller awaits. The library prints nothing itself. */

import { expectMethods } from './options.ts'

/** Receives warnings. `code` is stable; `message` is for users. */
export interface Log {
  /** Receives one warning. */
  warn(code: string, message: string): void
}

/** Uses Node's process warnings: printed on stderr, observable by `process.on('warning')`. */
export const processLog: Log = {
  warn(code, message) {
    process.emitWarning(message, { type: 'TuttiWarning', code })
  },
}

/**
 * The log of an application, or `processLog`. What the application's log throws is ignored: a
 * warning must not keep a task from its end.
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

/** One for each log, because some warnings are given once for each. */
const guarded = new WeakMap<Log, Log>()
