/** Waits for promises with a limit or an AbortSignal, shares them, and recognizes thenables. */

import type { Clock } from './clock.ts'
import { TimeoutError } from './errors.ts'

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    'then' in value &&
    typeof value.then === 'function'
  )
}

/** Settles like the promise, or rejects with `TimeoutError`. The operation itself continues. */
export function boundedWait<T>(clock: Clock, ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = (): void => reject(new TimeoutError(`no answer within ${ms / 1000} s`))
    // Waits one more turn, because timers may fire before I/O that has already arrived.
    const cancel = clock.after(ms, () => clock.nextTurn(expire))
    promise.finally(cancel).then(resolve, reject)
  })
}

/** Resolves with `false` if the promise is rejected, or not fulfilled in time. */
export const fulfillsWithin = (clock: Clock, ms: number, promise: Promise<unknown>) =>
  boundedWait(clock, ms, promise).then(
    () => true,
    () => false,
  )

/** Settles like the promise, or rejects with the reason of the signal when it is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  // Handles a rejection that follows the abort.
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

/** A computation that several callers share. It is aborted once none of them waits for it. */
export class SharedResult<T> {
  readonly #controller = new AbortController()
  readonly #result: Promise<T>
  /** Resolves at the end of the computation, with `true` if it has a result. */
  readonly hasResult: Promise<boolean>
  #waiting = 0

  constructor(compute: (signal: AbortSignal) => Promise<T>) {
    this.#result = compute(this.#controller.signal)
    this.hasResult = this.#result.then(
      () => true,
      () => false,
    )
  }

  get isAborted(): boolean {
    return this.#controller.signal.aborted
  }

  /** Waits for the result. Rejects as soon as `signal` is aborted. */
  async wait(signal: AbortSignal): Promise<T> {
    signal.throwIfAborted()
    this.#waiting++
    const leave = (): void => {
      if (--this.#waiting === 0) this.#controller.abort()
    }
    signal.addEventListener('abort', leave, { once: true })
    try {
      return await unlessAborted(signal, this.#result)
    } finally {
      signal.removeEventListener('abort', leave)
    }
  }
}
