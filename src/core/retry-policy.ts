/** Decides whether and after which delay a failed attempt is retried. */

import { messageOf } from '../foundation/errors.ts'
import { randomFraction } from '../foundation/ids.ts'
import type { Log } from '../foundation/log.ts'
import { isThenable } from '../foundation/promises.ts'
import { backOffDelay } from '../runtime/retry.ts'
import type { RetryPolicy } from '../tasks/task-fields.ts'
import type { Entry } from './entry.ts'

export interface FailedAttempt {
  /** The number of the failed attempt, from 1. */
  readonly attempt: number
  readonly error: unknown
}

export type RetryDecision =
  | { readonly kind: 'retry'; readonly delaySeconds: number }
  /** `problem` is the error that the policy's `if` threw. The task is not retried in this case. */
  | { readonly kind: 'end'; readonly problem?: unknown }

const end: RetryDecision = Object.freeze({ kind: 'end' })

/** Decides what follows a failed attempt of a task. Ignores attempts of an earlier run. */
export function decideNext(entry: Entry, error: unknown, log: Log): RetryDecision {
  const { task } = entry
  const attempt = entry.attempt - entry.firstAttempt + 1
  const decision = decideRetry(task.retryPolicy, { attempt, error }, randomFraction)
  if ('problem' in decision) {
    const text = `\`retries.if\` of task ${task.uid} failed, so the task is not retried`
    log.warn('RetryConditionFailed', `${text}: ${messageOf(decision.problem)}`)
  }
  return decision
}

/** Decides whether to retry. Pure. `random` returns numbers from 0 to below 1, for the jitter. */
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

/** Returns the answer of the policy's `if`. Throws for a promise, which would always be truthy. */
function expectAnswer(answer: unknown): boolean {
  if (!isThenable(answer)) return Boolean(answer)
  // Nobody awaits the promise, so its rejection is handled here.
  answer.then(undefined, () => {})
  throw new TypeError('it returned a promise instead of a boolean')
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
