/** A bound on foreign promises, so that a shutdown always comes to its end. */

import type { Clock } from '../foundation/clock.ts'
import { TimeoutError } from '../foundation/errors.ts'

/**
 * The promise's outcome, or `TimeoutError` after `ms`. What comes later is ignored, also a
 * rejection.
 */
export async function within<T>(clock: Clock, ms: number, promise: Promise<T>): Promise<T> {
  const { promise: deadline, reject } = Promise.withResolvers<never>()
  const cancel = clock.after(ms, () => reject(new TimeoutError(`no answer within ${ms} ms`)))
  try {
    return await Promise.race([promise, deadline])
  } finally {
    cancel()
    promise.catch(() => {})
  }
}
