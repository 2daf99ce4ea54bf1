/** How long anything that is sampled is waited for. */

import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'

/** After this the rest goes on without it. */
export const longestWaitMs = 2000

/** The promise's outcome, or `TimeoutError` after the longest wait. */
export const withDeadline = <T>(clock: Clock, promise: Promise<T>): Promise<T> =>
  boundedWait(clock, longestWaitMs, promise)
