import { performance } from 'node:perf_hooks'
import { describe, expect, it } from 'vitest'
import { machineMs, toMoment, readClocks } from '../../../src/backends/local/machine-time.ts'
import { type Clock, systemClock } from '../../../src/foundation/clock.ts'

describe('times of the machine', () => {
  it('row 117: times of the machine are converted by readings of one moment', () => {
    let readings = 0
    const interrupted: Clock = {
      ...systemClock,
      now() {
        const now = systemClock.now()
        if (++readings === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50)
        return now
      },
      monotonicMs: () => performance.now(),
    }
    // A pair of readings that is interrupted gives less.
    const differences = Array.from({ length: 20 }, () => machineMs() - performance.now())
    const machineAhead = Math.max(...differences)
    const reading = readClocks(interrupted)
    expect(readings).toBeGreaterThan(1)
    const moment = toMoment(reading, reading.machineMs - 1000)
    expect(moment.monotonicMs + machineAhead).toBeCloseTo(reading.machineMs - 1000, -1)
  })
})
