/** The functions of the demo, in a separate module because workers import it. */

import { defineTask } from '../tasks/define-task.ts'

/** The URL of the guide. It is defined here, because other modules of the command are bundled. */
export const guideUrl = new URL('../../docs/guide/getting-started.md', import.meta.url)

/** Monte Carlo estimate of pi; the same seed always gives the same result. */
export const simulate = defineTask(
  import.meta.url,
  function simulate(seed: number, darts: number): number {
    if (seed % 50 === 7) throw new RangeError('demo: bad seed')
    let state = (seed * 2_654_435_761 + 1) >>> 0
    const random = (): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
      return state / 2 ** 32
    }
    let hits = 0
    for (let dart = 0; dart < darts; dart++) {
      const [x, y] = [random(), random()]
      if (x * x + y * y < 1) hits++
    }
    return (4 * hits) / darts
  },
)
