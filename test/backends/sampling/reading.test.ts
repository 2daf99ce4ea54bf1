import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  clampPercent,
  DeltaCounter,
  percentOf,
  UtilizationMeter,
} from '../../../src/backends/sampling/sampler.ts'
import { assertProperty } from '../../property.ts'

const anyReading = fc.oneof(fc.double(), fc.nat(), fc.constant(null))

describe('DeltaCounter', () => {
  it('row 60: no sequence of counter readings gives a negative or unreal delta', () => {
    assertProperty(
      fc.property(fc.array(anyReading), (readings) => {
        const meter = new DeltaCounter()
        for (const reading of readings) {
          const gain = meter.advance(reading)
          if (gain !== null) expect(gain).toBeGreaterThanOrEqual(0)
        }
      }),
    )
  })

  it('a counter that never runs backwards yields its whole gain, gaps included', () => {
    const steps = fc.array(fc.record({ gain: fc.nat(), isUnread: fc.boolean() }))
    assertProperty(
      fc.property(fc.nat(), steps, (first, rest) => {
        const meter = new DeltaCounter()
        expect(meter.advance(first)).toBeNull()
        let value = first
        let told = 0
        for (const { gain, isUnread } of rest) {
          value += gain
          told += meter.advance(isUnread ? null : value) ?? 0
        }
        told += meter.advance(value) ?? NaN
        expect(told).toBe(value - first)
      }),
    )
  })

  it('row 60: a counter that was reset is unknown once and counted again from there', () => {
    const meter = new DeltaCounter()
    const gains = [4_294_967_000, 4_294_967_290, 12, 20].map((value) => meter.advance(value))
    expect(gains).toEqual([null, 290, null, 8])
  })
})

describe('UtilizationMeter', () => {
  it('row 60: any sequence of usages gives null or a number from 0 to 100', () => {
    const usage = fc.option(fc.record({ busy: fc.double(), total: fc.double() }))
    assertProperty(
      fc.property(fc.array(usage), (usages) => {
        const meter = new UtilizationMeter()
        for (const each of usages) {
          const share = meter.advance(each)
          if (share === null) continue
          expect(share).toBeGreaterThanOrEqual(0)
          expect(share).toBeLessThanOrEqual(100)
        }
      }),
    )
  })

  it('UtilizationMeter keeps its baseline and its last share when no time has passed', () => {
    const meter = new UtilizationMeter()
    expect(meter.advance({ busy: 10, total: 100 })).toBeNull()
    expect(meter.advance({ busy: 10, total: 100 })).toBe(10)
    expect(meter.advance({ busy: 35, total: 200 })).toBe(25)
    expect(meter.advance({ busy: 35, total: 200 })).toBe(25)
  })
})

describe('percentages', () => {
  it('percentages are clamped, and null where they make no sense', () => {
    expect([percentOf(1, 4), percentOf(5, 4), percentOf(-1, 4)]).toEqual([25, 100, 0])
    expect([percentOf(0, 0), percentOf(1, -1), percentOf(NaN, 1)]).toEqual([null, null, null])
    expect([clampPercent(200), clampPercent(-3), clampPercent(NaN)]).toEqual([100, 0, null])
  })
})
