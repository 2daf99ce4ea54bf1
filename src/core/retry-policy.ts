/** Decides whether and after which delay a failed attempt is retried. */

import { messageOf } from '../foundation/errors.ts'
import { randomFraction } from '../foundation/ids.ts'
import type { Log } from '../foundation/log.ts'
import { isThenable } from '../foundation/promises.ts'
import { backOffDelay } from '../runtime/retry.ts'
import type { RetryPolicy } from '../tasks/retries.ts'
import type { Entry } from './entry.ts'

export interface FailedAttempt {
  /** 1 for the first. */
  readonly attempt: number
  /** The error as it was thrown. */
  readonly error: unknown
}

export type RetryDecision =
  | { readonly kind: 'retry'; readonly delaySeconds: number }
  /** `problem` is what the policy's `if` threw; there is no retry then. */
  | { readonly kind: 'end'; readonly problem?: unknown }

const end: RetryDecision = Object.freeze({ kind: 'end' })

/** Decides for the current attempt of a task. Attempts of an earlier run do not count. */
export function decideNext(entry: Entry, error: unknown, log: Log): RetryDecision {
  const { task } = entry
  const attempt = entry.attempt - entry.firstAttempt + 1
  const decision = decideRetry(task.retryPolicy, { attempt, error }, randomFraction)
  if ('problem' in decision) {
    const text = `\`retries.if\` of task ${task.uid} failed, so it is not tried again`
    log.warn('RetryConditionFailed', `${text}: ${messageOf(decision.problem)}`)
  }
  return decision
}

/** Pure. `random` returns numbers from 0 to below 1, for the jitter. */
export function decideRetry(
  policy: RetryPolicy,
  failed: FailedAttempt,
  random: () => number,
): RetryDecision {
  if (failed.attempt > policy.times) return end
  if (policy.if !== null) {
    try {
      if (!expectAnswer(policy.if(failed.error))) return end
    } catch (problem) {
      return { kind: 'end', problem }
    }
  }
  return { kind: 'retry', delaySeconds: delayAfter(policy, failed.attempt, random) }
}

/** Rejects a promise, which would be truthy whatever it resolves with. */
function expectAnswer(answer: unknown): boolean {
  if (!isThenable(answer)) return Boolean(answer)
  // The promise is not awaited, so its rejection must not be unhandled.
  answer.then(undefined, () => {})
  throw new TypeError('it returned a promise; it must answer at once')
}

/** Exponential back-off. Even with jitter, the delay never exceeds `maxDelaySeconds`. */
export function delayAfter(
  { delaySeconds, factor, maxDelaySeconds, jitter }: RetryPolicy,
  attempt: number,
  random: () => number,
): number {
  const delay = backOffDelay(attempt, { first: delaySeconds, max: maxDelaySeconds, factor })
  if (jitter === 0) return delay
  return Math.min(maxDelaySeconds, delay * (1 + jitter * (2 * random() - 1)))
}
