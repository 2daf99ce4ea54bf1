/** Lets a signal end a wait for something that does not know the signal. */

/** The promise's outcome, or a rejection with the signal's reason as soon as it is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  // Nobody else may be there to hear of its failure.
  promise.catch(() => {})
  signal.throwIfAborted()
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const abort = (): void => reject(signal.reason)
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}
