import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { IndexedSet, type Indexed } from '../../src/runtime/indexed-set.ts'
import { assertProperty } from '../property.ts'

class Guest implements Indexed {
  setIndex = -1
}

describe('an indexed set', () => {
  it('holds what a Set would, in the same order, whatever comes and goes', () => {
    const step = fc.record({ guest: fc.nat(150), isComing: fc.boolean() })
    assertProperty(
      fc.property(fc.array(step, { maxLength: 600, size: 'max' }), (steps) => {
        const guests = Array.from({ length: 151 }, () => new Guest())
        const [roster, plain] = [new IndexedSet<Guest>(), new Set<Guest>()]
        for (const { guest: at, isComing } of steps) {
          const guest = guests[at]
          if (guest === undefined) continue
          expect(roster.has(guest)).toBe(plain.has(guest))
          if (!isComing) expect(roster.delete(guest)).toBe(plain.delete(guest))
          else if (!plain.has(guest)) {
            roster.add(guest)
            plain.add(guest)
          }
          expect(roster.size).toBe(plain.size)
        }
        expect(roster.toArray()).toEqual([...plain])
        expect(guests.every((guest) => roster.has(guest) === plain.has(guest))).toBe(true)
      }),
      { numRuns: 300 },
    )
  })

  it("does not take another roster's guests for its own", () => {
    const [mine, other] = [new IndexedSet<Guest>(), new IndexedSet<Guest>()]
    const [guest, stranger] = [new Guest(), new Guest()]
    mine.add(guest)
    other.add(stranger)
    expect([mine.has(stranger), mine.delete(stranger), other.has(stranger)]).toEqual([
      false,
      false,
      true,
    ])
  })

  it('lets the caller delete while going through it', () => {
    const roster = new IndexedSet<Guest>()
    for (let count = 0; count < 1000; count++) roster.add(new Guest())
    for (const guest of roster.toArray()) roster.delete(guest)
    expect([roster.size, roster.toArray()]).toEqual([0, []])
  })
})
