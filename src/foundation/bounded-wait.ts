/** A bound on foreign promises, so that a shutdown always comes to its end. */

import type { Clock } from './clock.ts'
import { TimeoutError } from './errors.ts'

/**
 * The promise's outcome, or `TimeoutError` after `ms`. Only the waiting stops; what comes later is
 * ignored, also a rejection.
 */
export function boundedWait<T>(clock: Clock, ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = (): void => reject(new TimeoutError(`no answer within ${ms / 1000} s`))
    // After a turn that took long, timers come before the answers that arrived meanwhile.
    const cancel = clock.after(ms, () => clock.nextTurn(expire))
    promise.finally(cancel).then(resolve, reject)
  })
}
