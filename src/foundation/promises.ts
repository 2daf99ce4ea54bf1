/** Waits for promises with a time limit or an AbortSignal, and recognizes thenables. */

import type { Clock } from './clock.ts'
import { TimeoutError } from './errors.ts'

/** Whether `await value` would wait. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    'then' in value &&
    typeof value.then === 'function'
  )
}

/**
 * Settles like the promise, or rejects with a `TimeoutError` after `ms`. The operation itself is
 * not stopped; its later outcome, even a rejection, is ignored.
 */
export function boundedWait<T>(clock: Clock, ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = (): void => reject(new TimeoutError(`no answer within ${ms / 1000} s`))
    // After a long turn of the loop, timers run before the I/O that arrived meanwhile.
    const cancel = clock.after(ms, () => clock.nextTurn(expire))
    promise.finally(cancel).then(resolve, reject)
  })
}

/** Settles like the promise, or rejects with the signal's reason as soon as it is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  // If the signal wins, a later rejection would be unhandled.
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
