import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { IndexedSet, type Indexed } from '../../src/runtime/indexed-set.ts'
import { assertProperty } from '../property.ts'

class Item implements Indexed {
  setIndex = -1
}

describe('an indexed set', () => {
  it('an indexed set holds the items of a Set, in the same order, after any calls', () => {
    const step = fc.record({ item: fc.nat(150), isComing: fc.boolean() })
    assertProperty(
      fc.property(fc.array(step, { maxLength: 600, size: 'max' }), (steps) => {
        const items = Array.from({ length: 151 }, () => new Item())
        const [indexed, plain] = [new IndexedSet<Item>(), new Set<Item>()]
        for (const { item: at, isComing } of steps) {
          const item = items[at]
          if (item === undefined) continue
          expect(indexed.has(item)).toBe(plain.has(item))
          if (!isComing) expect(indexed.delete(item)).toBe(plain.delete(item))
          else if (!plain.has(item)) {
            indexed.add(item)
            plain.add(item)
          }
          expect(indexed.size).toBe(plain.size)
        }
        expect(indexed.toArray()).toEqual([...plain])
        expect(items.every((item) => indexed.has(item) === plain.has(item))).toBe(true)
      }),
      { numRuns: 300 },
    )
  })

  it('an indexed set holds the items of a Set where most leave in arrival order', () => {
    const [indexed, plain] = [new IndexedSet<Item>(), new Set<Item>()]
    const remove = (item: Item | undefined): void => {
      if (item === undefined) return
      expect([indexed.delete(item), indexed.has(item)]).toEqual([plain.delete(item), false])
    }
    for (let round = 0; round < 3000; round++) {
      const item = new Item()
      indexed.add(item)
      plain.add(item)
      if (round > 500) remove([...plain][0])
      // A few stay for long, and some leave early.
      if (round % 97 === 0) remove([...plain].at(-1))
      if (round % 1000 < 300) remove([...plain][1])
    }
    expect(indexed.toArray()).toEqual([...plain])
    expect([...plain].every((item) => indexed.has(item))).toBe(true)
    for (const item of plain) remove(item)
    expect([indexed.size, indexed.toArray()]).toEqual([0, []])
  })

  it("an indexed set does not take another set's items for its own", () => {
    const [mine, other] = [new IndexedSet<Item>(), new IndexedSet<Item>()]
    const [item, stranger] = [new Item(), new Item()]
    mine.add(item)
    other.add(stranger)
    expect([mine.has(stranger), mine.delete(stranger), other.has(stranger)]).toEqual([
      false,
      false,
      true,
    ])
  })

  it('an indexed set lets the caller delete while going through it', () => {
    const indexed = new IndexedSet<Item>()
    for (let count = 0; count < 1000; count++) indexed.add(new Item())
    for (const item of indexed.toArray()) indexed.delete(item)
    expect([indexed.size, indexed.toArray()]).toEqual([0, []])
  })
})
