import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { DerivedIds, newIdKey } from '../../src/events/derived-ids.ts'
import { assertProperty } from '../property.ts'

describe('derived ids', () => {
  it('derived ids: two instances with one key give the same ids', async () => {
    const key = newIdKey()
    const [one, other] = [new DerivedIds(key), new DerivedIds(key.slice())]
    await assertProperty(
      fc.asyncProperty(fc.maxSafeNat(), async (number) => {
        expect(one.eventId(number)).toBe(other.eventId(number))
        expect(one.spanId(number)).toBe(other.spanId(number))
        expect(one.eventId(number)).toMatch(/^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$/)
        expect(one.spanId(number)).toMatch(/^[0-9a-f]{16}$/)
      }),
    )
  })

  it('derived ids: are unique, also beyond 2^32, and different for each key', () => {
    const starts = [0, 2 ** 32 - 10_000, 2 ** 40]
    for (const of of [new DerivedIds(newIdKey()), new DerivedIds(new Int32Array(6))]) {
      const [events, spans] = [new Set<string>(), new Set<string>()]
      for (const start of starts) {
        for (let number = start; number < start + 20_000; number++) {
          events.add(of.eventId(number))
          spans.add(of.spanId(number))
        }
      }
      expect([events.size, spans.size]).toEqual([60_000, 60_000])
    }
    const first = [newIdKey(), newIdKey()].map((key) => new DerivedIds(key).eventId(1))
    expect(new Set(first).size).toBe(2)
  })

  it('derived ids: every bit of an id is set for about half of the numbers', () => {
    const ids = new DerivedIds(newIdKey())
    const count = 5_000
    const set = Array.from({ length: 192 }, () => 0)
    for (let number = 1; number <= count; number++) {
      const bits = BigInt(`0x${ids.eventId(number)}${ids.spanId(number)}`)
        .toString(2)
        .padStart(192, '0')
      for (let bit = 0; bit < 192; bit++) if (bits[bit] === '1') set[bit] = (set[bit] ?? 0) + 1
    }
    // The version and the variant are fixed.
    const fixed = new Set([48, 49, 50, 51, 64, 65])
    const shares = set.map((one) => one / count).filter((_, bit) => !fixed.has(bit))
    expect(Math.min(...shares)).toBeGreaterThan(0.4)
    expect(Math.max(...shares)).toBeLessThan(0.6)
  })

  it('derived ids: a number whose span id would be zero has none', () => {
    const zero = new DerivedIds(new Int32Array(6))
    expect(zero.spanId(0)).toBe('0'.repeat(16))
    expect([zero.isSpanNumber(0), zero.isSpanNumber(1)]).toEqual([false, true])
  })
})
