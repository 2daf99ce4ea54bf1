/**
 * Callbacks at the exit of the process: by `process.exit`, an uncaught error or the end of the
 * event loop. They are not called if a signal without a listener ends the process, if the
 * application removes all listeners of `exit`, or if it exits with the stack exhausted.
 */

const callbacks = new Set<() => void>()

/**
 * Calls back synchronously at the exit of the process, before existing listeners, because one of
 * them may throw and end the process. All callbacks share one listener, which is registered only
 * while there are callbacks. The returned function removes the callback.
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

/** An `exit` listener that was registered before ours threw, so ours is not called any more. */
function runIfExiting(): void {
  if (Reflect.get(process, '_exiting') === true) runAll()
}

/** An error of one callback must not prevent the others. */
function runAll(): void {
  for (const callback of callbacks) {
    try {
      callback()
    } catch {
      // The process is exiting, so the error cannot be reported.
    }
  }
}
