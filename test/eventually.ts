/** Waiting for something that no event announces, such as the end of a foreign process. */

import { vi } from 'vitest'
import { hangMs } from './long-run.ts'

/** Repeats the assertions until they hold. Gives up only when the test counts as hanging. */
export function eventually<Value>(assertions: () => Value | Promise<Value>): Promise<Value> {
  return vi.waitFor(assertions, { timeout: hangMs * 0.9, interval: 10 })
}
