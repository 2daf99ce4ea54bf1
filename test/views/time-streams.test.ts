import { expect, it } from 'vitest'
import { sortIndexes } from '../../src/views/bounds/classes/time-streams.ts'
import { createRandom } from '../long-run.ts'

it('indexes are sorted as by a stable sort, whatever the length and the order', () => {
  const random = createRandom(7)
  for (let length = 0; length < 70; length++) {
    const values = Float64Array.from({ length }, (_, at) =>
      at % 9 === 8 ? Infinity : Math.floor(random() * length) + at / 2,
    )
    const expected = [...values.keys()].toSorted(
      (a, b) => Math.sign((values[a] ?? 0) - (values[b] ?? 0)) || a - b,
    )
    expect([...sortIndexes(values)]).toEqual(expected)
  }
})
