import fc from 'fast-check'
import { expect, it } from 'vitest'
import { NumberSet } from '../../../src/cluster/protocol/number-set.ts'
import { assertProperty } from '../../property.ts'

const number = fc.integer({ min: 1, max: 12 })
const step = fc.record({ from: number, to: number, except: fc.array(number, { maxLength: 3 }) })

it('a number set has the numbers and ranges that were added, in any order', () => {
  assertProperty(
    fc.property(fc.array(step), fc.array(number), (ranges, numbers) => {
      const set = new NumberSet()
      const expected = new Set<number>()
      for (const { from, to, except } of ranges) {
        set.addRange({ from, to }, except)
        for (let one = from; one <= to; one++) if (!except.includes(one)) expected.add(one)
      }
      for (const one of numbers) {
        expect(set.add(one)).toBe(!expected.has(one))
        expected.add(one)
      }
      let through = 0
      while (expected.has(through + 1)) through++
      const copy = new NumberSet()
      copy.addAll(set)
      for (const one of [set, copy]) {
        expect(one.through).toBe(through)
        const found = Array.from({ length: 14 }, (_, at) => at + 1).filter((at) => one.has(at))
        expect(found).toEqual([...expected].toSorted((a, b) => a - b))
      }
    }),
    { numRuns: 500 },
  )
})
