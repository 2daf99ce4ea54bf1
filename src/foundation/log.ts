/** Warnings about things that no caller awaits. The library prints nothing itself. */

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
