import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PriorityQueue } from '../../src/runtime/priority-queue.ts'
import { assertProperty } from '../property.ts'

describe('PriorityQueue', () => {
  it('a priority queue returns its items in order, whatever was removed from the middle', () => {
    const values = fc.array(fc.tuple(fc.nat(100), fc.nat(3)), { minLength: 30, maxLength: 100 })
    assertProperty(
      fc.property(values, (items) => {
        const queue = new PriorityQueue<number>((a, b) => a < b)
        const entries = items.map(([value]) => queue.add(value))
        const kept = items.flatMap(([value, chance], at) => {
          const entry = entries[at]
          if (chance > 0 || entry === undefined) return [value]
          queue.remove(entry)
          return []
        })
        expect(queue.size).toBe(kept.length)
        const order = kept.map(() => {
          const first = queue.peek()
          expect(queue.pop()).toBe(first)
          return first
        })
        expect(order).toEqual(kept.toSorted((a, b) => a - b))
        expect([queue.size, queue.peek(), queue.pop()]).toEqual([0, undefined, undefined])
      }),
    )
  })
})
