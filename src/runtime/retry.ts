/** Repeats an operation with pauses until it succeeds, is aborted, or has used all its attempts. */

import { type Clock, sleep } from '../foundation/clock.ts'
import { isThenable } from '../foundation/promises.ts'
import { backOffDelay } from './back-off.ts'

export interface RetryPolicy {
  /** The pause after the first attempt. */
  readonly delayMs: number
  /** Each pause is twice as long as the last, up to this maximum. Default: all pauses are equal. */
  readonly maxDelayMs?: number
  /** Default: no limit. */
  readonly maxAttempts?: number
  /** No further attempt is made after this time. Default: no limit. */
  readonly timeoutMs?: number
}

export interface RetryOptions {
  readonly clock: Clock
  readonly signal?: AbortSignal | undefined
}

/**
 * Calls `look` until it returns something other than `undefined` or `false`. Resolves with
 * `undefined` when the limits of the policy are reached or the signal is aborted.
 */
export async function poll<T>(
  policy: RetryPolicy,
  look: (attempt: number) => T | false | undefined | Promise<T | false | undefined>,
  { clock, signal }: RetryOptions,
): Promise<T | undefined> {
  const { delayMs: first, maxDelayMs: max = first, maxAttempts = Infinity } = policy
  const untilMs = clock.monotonicMs() + (policy.timeoutMs ?? Infinity)
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted === true) return undefined
    // Awaits only a promise, so that a look and the timer of its pause are one step.
    const looked = look(attempt)
    const found = isThenable(looked) ? await looked : looked
    if (found !== undefined && found !== false) return found
    if (attempt >= maxAttempts || clock.monotonicMs() >= untilMs) return undefined
    await sleep(clock, backOffDelay(attempt, { first, max }), { signal }).catch(() => {})
  }
}

/**
 * Calls `operation` until it succeeds. Rejects with its last error, or with the signal's reason.
 * `mayRetry` returns whether to try again after an error. Default: always.
 */
export async function retry<T>(
  policy: RetryPolicy,
  operation: (attempt: number) => T | Promise<T>,
  options: RetryOptions & { readonly mayRetry?: (error: unknown) => boolean },
): Promise<T> {
  const { clock, signal, mayRetry = () => true } = options
  const untilMs = clock.monotonicMs() + (policy.timeoutMs ?? Infinity)
  for (let attempt = 1; ; attempt++) {
    try {
      return await operation(attempt)
    } catch (error) {
      const isOver = attempt === policy.maxAttempts || clock.monotonicMs() >= untilMs
      if (!mayRetry(error) || isOver) throw error
    }
    await sleep(clock, policy.delayMs, { signal })
  }
}
