/**
 * What must still be written when the process exits: by `process.exit`, an uncaught error or the
 * end of the event loop. A signal without a listener ends the process without it, and so does an
 * application that removes all listeners of `exit`, or exits with no stack left.
 */

const callbacks = new Set<() => void>()

/**
 * Calls back synchronously at the exit of the process: before the listeners that were there, one of
 * which may throw and end the process. All callbacks share one listener, which is there only while
 * there are callbacks. The returned function removes the callback.
 */
export function atExit(callback: () => void): () => void {
  // A callback of its own: the same function may be registered twice.
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

/** A listener of `exit` that was put before ours threw: ours is not called any more. */
function runIfExiting(): void {
  if (Reflect.get(process, '_exiting') === true) runAll()
}

/** An error of one callback must not keep the others from writing. */
function runAll(): void {
  for (const callback of callbacks) {
    try {
      callback()
    } catch {
      // The process is ending: there is nobody to report it to.
    }
  }
}
