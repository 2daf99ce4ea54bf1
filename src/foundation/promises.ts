/** Waiting for promises: with a time limit, with an AbortSignal, and recognising thenables. */

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
 * Settles like the promise, or rejects with `TimeoutError` after `ms`. Only the waiting stops: a
 * later outcome, also a rejection, is ignored.
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
  // If the signal wins, nobody else handles a later rejection.
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
