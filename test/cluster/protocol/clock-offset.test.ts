import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ClockOffset } from '../../../src/cluster/protocol/driver/clock-offset.ts'
import { assertProperty } from '../../property.ts'

const trip = fc.record({
  thereMs: fc.double({ min: 0, max: 300, noNaN: true }),
  busyMs: fc.double({ min: 0, max: 50, noNaN: true }),
  backMs: fc.double({ min: 0, max: 300, noNaN: true }),
})

describe('the offset between two clocks', () => {
  it('a clock offset is wrong by at most half of the shortest of the last round trips', () => {
    assertProperty(
      fc.property(
        fc.double({ min: -1e8, max: 1e8, noNaN: true }),
        fc.array(trip, { minLength: 1, maxLength: 40 }),
        (offsetMs, trips) => {
          const offset = new ClockOffset()
          let nowMs = 1000
          for (const { thereMs, busyMs, backMs } of trips) {
            const receivedMs = nowMs + thereMs
            const sentMs = receivedMs + busyMs
            const answeredMs = sentMs + backMs
            offset.add(nowMs, receivedMs + offsetMs, sentMs + offsetMs, answeredMs)
            nowMs = answeredMs + 500
          }
          const shortest = Math.min(...trips.slice(-16).map((one) => one.thereMs + one.backMs))
          const error = Math.abs(offset.toLocalMs(nowMs + offsetMs) - nowMs)
          expect(error).toBeLessThanOrEqual(shortest / 2 + 1e-4)
        },
      ),
    )
  })

  it('a clock offset follows a clock that drifts: old round trips are forgotten', () => {
    const offset = new ClockOffset()
    expect(offset.isKnown).toBe(false)
    offset.add(0, 100, 100, 0)
    for (let at = 1; at <= 16; at++)
      offset.add(at * 500, at * 500 + 205, at * 500 + 205, at * 500 + 10)
    expect(offset.isKnown).toBe(true)
    expect(offset.toLocalMs(10_200)).toBe(10_000)
  })
})
