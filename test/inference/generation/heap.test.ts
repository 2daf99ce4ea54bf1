import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Heap } from '../../../src/inference/generation/heap.ts'
import { assertProperty } from '../../property.ts'

describe('a heap', () => {
  it('gives its items in order, whatever was taken out of the middle', () => {
    const values = fc.array(fc.tuple(fc.nat(100), fc.nat(3)), { minLength: 30, maxLength: 100 })
    assertProperty(
      fc.property(values, (items) => {
        const heap = new Heap<number>((a, b) => a < b)
        const places = items.map(([value]) => heap.add(value))
        const kept = items.flatMap(([value, chance], at) => {
          const place = places[at]
          if (chance > 0 || place === undefined) return [value]
          heap.remove(place)
          return []
        })
        expect(heap.size).toBe(kept.length)
        const order = kept.map(() => {
          const first = heap.first()
          // The first item lies at 0.
          heap.remove({ at: 0 })
          return first
        })
        expect(order).toEqual(kept.toSorted((a, b) => a - b))
        expect([heap.size, heap.first()]).toEqual([0, undefined])
      }),
    )
  })
})
