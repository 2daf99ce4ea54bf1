/** Bounds a wait for something that may never answer. It stops only the waiting. */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'

/** How long a sampler is waited for before the rest goes on without it. */
export const longestWaitMs = 2000

/** The promise's outcome, or `TimeoutError` after `ms`. */
export function withDeadline<T>(
  clock: Clock,
  promise: Promise<T>,
  ms: number = longestWaitMs,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = (): void => reject(new TimeoutError(`no answer within ${ms / 1000} s`))
    // After a turn that took long, timers come before the answers that arrived meanwhile.
    const cancel = clock.after(ms, () => clock.nextTurn(expire))
    promise.finally(cancel).then(resolve, reject)
  })
}
