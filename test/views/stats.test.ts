import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { durationStats } from '../../src/views/stats.ts'
import { assertProperty } from '../property.ts'

describe('durationStats', () => {
  it('durationStats: zeros for no data', () => {
    expect(durationStats([])).toEqual({ mean: 0, p50: 0, p95: 0, p99: 0, max: 0 })
  })

  it('durationStats: quantiles by the nearest rank', () => {
    expect(durationStats([7])).toEqual({ mean: 7, p50: 7, p95: 7, p99: 7, max: 7 })
    const values = Array.from({ length: 100 }, (_, at) => 100 - at)
    expect(durationStats(values)).toEqual({ mean: 50.5, p50: 50, p95: 95, p99: 99, max: 100 })
    // Numbers, not texts, are sorted.
    expect(durationStats([10, 9, 100]).p50).toBe(10)
  })

  it('durationStats: quantiles are ordered and in range, and the input is not changed', () => {
    const seconds = fc.double({ min: 0, max: 1e6, noNaN: true })
    assertProperty(
      fc.property(fc.array(seconds, { minLength: 1, maxLength: 50 }), (values) => {
        const before = [...values]
        const { mean, p50, p95, p99, max } = durationStats(values)
        expect(values).toEqual(before)
        expect([p50, p95, p99, max].every((one) => values.includes(one))).toBe(true)
        expect(p50 <= p95 && p95 <= p99 && p99 <= max).toBe(true)
        expect(max).toBe(Math.max(...values))
        expect(mean).toBeGreaterThanOrEqual(Math.min(...values) * (1 - 1e-9))
        expect(mean).toBeLessThanOrEqual(max * (1 + 1e-9))
      }),
    )
  })
})
