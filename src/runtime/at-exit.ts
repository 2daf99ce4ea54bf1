/**
 * Callbacks for the exit of the process: by `process.exit`, an uncaught error or an empty event
 * loop. They are not called if a signal without a listener kills the process, if the application
 * removes all `exit` listeners, or if the process exits with an exhausted stack.
 */

const callbacks = new Set<() => void>()

/**
 * Calls back synchronously when the process exits, before existing `exit` listeners, because one of
 * them may throw. All callbacks share one listener, which is registered only while there are
 * callbacks. The returned function removes the callback.
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

/** If an earlier `exit` listener throws, Node does not call `runAll`, so this function does. */
function runIfExiting(): void {
  if (Reflect.get(process, '_exiting') === true) runAll()
}

/** An error in one callback must not prevent the others. */
function runAll(): void {
  for (const callback of callbacks) {
    try {
      callback()
    } catch {
      // The process is exiting, so the error cannot be reported.
    }
  }
}
