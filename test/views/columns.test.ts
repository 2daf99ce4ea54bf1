import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createColumn, createTextIndex, indexOf } from '../../src/views/columns.ts'
import { setValue, textAt, valueAt } from '../../src/views/columns.ts'
import { assertProperty } from '../property.ts'

it('columns: a row holds what was set last, over many blocks; others hold 0', () => {
  const column = createColumn('f64')
  for (let row = 0; row < 10_000; row++) setValue(column, row, row / 3)
  setValue(column, 5000, Number.NaN)
  expect([0, 4096, 9999].map((row) => valueAt(column, row))).toEqual([0, 4096 / 3, 3333])
  expect(valueAt(column, 5000)).toBeNaN()
  expect(valueAt(column, 123_456)).toBe(0)
})

it('text index: any strings get numbers in the order of appearance and come back equal', () => {
  const texts = fc.array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 20 }),
      fc.constantFrom('', 'a', 'a\0', '\uD800'),
    ),
    { maxLength: 200 },
  )
  assertProperty(
    fc.property(texts, (given) => {
      const index = createTextIndex()
      const distinct = [...new Set(given)]
      const numbers = given.map((text) => indexOf(index, text))
      expect(numbers).toEqual(given.map((text) => distinct.indexOf(text)))
      expect(distinct.map((_, row) => textAt(index, row))).toEqual(distinct)
      expect(index.size).toBe(distinct.length)
    }),
  )
})

it('text index: many similar uids stay apart', () => {
  const index = createTextIndex()
  const uids = Array.from({ length: 50_000 }, (_, at) => `task.${String(at).padStart(6, '0')}`)
  for (const round of [1, 2]) {
    expect(
      uids.every((uid, at) => indexOf(index, uid) === at),
      `round ${round}`,
    ).toBe(true)
  }
  expect(textAt(index, 49_999)).toBe('task.049999')
})
