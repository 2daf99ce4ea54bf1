/**
 * What must still be written when the process exits: by `process.exit`, an uncaught error or the
 * end of the event loop. A signal without a listener ends the process without it.
 */

const callbacks = new Set<() => void>()

/**
 * Calls back once, synchronously, at the exit of the process. All callbacks share one listener,
 * which is there only while there are callbacks. The returned function removes the callback.
 */
export function atExit(callback: () => void): () => void {
  // A callback of its own: the same function may be registered twice.
  const registered = (): void => callback()
  if (callbacks.size === 0) process.on('exit', runAll)
  callbacks.add(registered)
  return () => {
    if (callbacks.delete(registered) && callbacks.size === 0) process.off('exit', runAll)
  }
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
