/** Waiting for something that no event announces, such as the end of a foreign process. */

import { setTimeout } from 'node:timers/promises'
import { hangMs } from './long-run.ts'

const firstWaitMs = 10
/** A failed assertion costs half a millisecond, which a hundred a second would make a load. */
const maxWaitMs = 50

/**
 * Repeats the assertions until they hold, less often the longer it takes. Gives up only when the
 * test counts as hanging.
 */
export async function eventually<Value>(assertions: () => Value | Promise<Value>): Promise<Value> {
  const untilMs = performance.now() + hangMs * 0.9
  for (let waitMs = firstWaitMs; ; waitMs = Math.min(waitMs * 1.1, maxWaitMs)) {
    try {
      return await assertions()
    } catch (error) {
      if (performance.now() > untilMs) throw error
    }
    await setTimeout(waitMs)
  }
}
