/**
 * Where the library says what no caller is waiting for. It never prints by itself: Node's warnings
 * do.
 */

/** A place for warnings; `code` is stable, the message is for people. */
export interface Log {
  warn(code: string, message: string): void
}

/** Node's own channel: printed once on stderr, or caught with `process.on('warning')`. */
export const processLog: Log = {
  warn(code, message) {
    process.emitWarning(message, { type: 'TuttiWarning', code })
  },
}
