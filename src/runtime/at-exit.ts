/**
 * Runs callbacks when the process exits by `process.exit`, an uncaught error or an empty event
 * loop. They do not run if a signal without a listener kills the process, if the application
 * removes all `exit` listeners, or if the stack is exhausted.
 */

const callbacks = new Set<() => void>()

/**
 * Registers a callback for the exit of the process. It runs synchronously, before existing `exit`
 * listeners, because one of them may throw. The returned function removes the callback.
 */
export function atExit(callback: () => void): () => void {
  // A new function each time, because the same callback may be registered twice.
  const registered = (): void => callback()
  if (callbacks.size === 0) {
    process.prependListener('exit', runAll)
    process.on('uncaughtExceptionMonitor', runIfExiting)
  }
  callbacks.add(registered)
  return () => {
    if (!callbacks.delete(registered) || callbacks.size > 0) return
    process.off('exit', runAll)
    process.off('uncaughtExceptionMonitor', runIfExiting)
  }
}

/** Runs the callbacks if an earlier `exit` listener throws, because Node then skips `runAll`. */
function runIfExiting(): void {
  if (Reflect.get(process, '_exiting') === true) runAll()
}

/** Runs all callbacks. An error in one callback must not prevent the others. */
function runAll(): void {
  for (const callback of callbacks) {
    try {
      callback()
    } catch {
      // The process is exiting, so the error cannot be reported.
    }
  }
}
