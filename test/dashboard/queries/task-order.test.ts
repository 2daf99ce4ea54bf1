import fc from 'fast-check'
import { expect, it } from 'vitest'
import { sortPage } from '../../../src/dashboard/queries/tasks/task-order.ts'
import { compareTexts, textKeys } from '../../../src/dashboard/queries/tasks/text-order.ts'
import { createTextIndex, indexOf, textAt } from '../../../src/views/columns.ts'
import { assertProperty } from '../../property.ts'

const pages = fc.record({
  offset: fc.nat(30),
  limit: fc.nat(30),
  isDescending: fc.boolean(),
})

it('a page is the part of all sorted tasks, whatever the order and the direction', () => {
  const values = fc.array(fc.oneof(fc.nat(5), fc.constant(Number.NaN)), { maxLength: 60 })
  assertProperty(
    fc.property(values, pages, (keys, page) => {
      const tasks = Uint32Array.from(keys.keys())
      const sign = page.isDescending ? -1 : 1
      const rank = (task: number): number => {
        const key = keys[task] ?? 0
        return Number.isNaN(key) ? Infinity : sign * key
      }
      const sorted = [...tasks].toSorted((a, b) => {
        return rank(a) === rank(b) ? a - b : rank(a) < rank(b) ? -1 : 1
      })
      const order = { keys: Float64Array.from(keys), compare: null }
      expect(sortPage(tasks, order, page)).toEqual(
        sorted.slice(page.offset, page.offset + page.limit),
      )
    }),
  )
})

it('texts are sorted by their units, also where they begin with the same ones', () => {
  const texts = fc.uniqueArray(
    fc.oneof(
      fc.constantFrom('', 'task', 'täsk', 'task.10000000', 'task.10000001'),
      fc.nat(2000).map((number) => `task.${number}`),
    ),
    { maxLength: 40 },
  )
  assertProperty(
    fc.property(texts, pages, (given, page) => {
      const index = createTextIndex()
      for (const text of given) indexOf(index, text)
      const compare = (a: number, b: number): number => compareTexts(index, a, b)
      const shown = sortPage(
        Uint32Array.from(given.keys()),
        { keys: textKeys(index), compare },
        page,
      )
      const sorted = given.toSorted()
      const expected = page.isDescending ? sorted.toReversed() : sorted
      expect(shown.map((row) => textAt(index, row))).toEqual(
        expected.slice(page.offset, page.offset + page.limit),
      )
    }),
  )
})
