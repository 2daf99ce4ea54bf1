import fc from 'fast-check'
import { expect, it } from 'vitest'
import { UidRegister } from '../../src/core/uid-register.ts'
import { parseUidNumber } from '../../src/foundation/ids.ts'
import { expectUid, generateUid } from '../../src/tasks/task-fields.ts'
import { assertProperty } from '../property.ts'

const toUid = (number: number): string => `task-${String(number).padStart(6, '0')}`

it('uid register: knows what was claimed and not released, as a Set would', () => {
  const uid = fc.oneof(
    fc.nat(50).map(toUid),
    fc.nat(20).map((step) => toUid(step * 4096)),
    fc.maxSafeNat().map((number) => toUid(number % 1e14)),
    fc.nat(5).map((at) => `mine-${at}`),
    fc.nat(5).map((at) => `task-00000${String(at).padStart(6, '0')}`),
  )
  const step = fc.record({ uid, isClaim: fc.boolean() })
  assertProperty(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const [register, plain] = [new UidRegister(), new Set<string>()]
      for (const { uid: one, isClaim } of steps) {
        if (isClaim) {
          expect(register.claim(one)).toBe(!plain.has(one))
          plain.add(one)
        } else if (plain.delete(one)) register.release(one)
      }
    }),
    { numRuns: 500 },
  )
})

it('uid register: takes little memory for consecutive and for scattered numbers', () => {
  const bytesOf = (step: number): number => {
    const register = new UidRegister()
    const before = process.memoryUsage().arrayBuffers
    for (let at = 0; at < 10_000; at++) register.claim(toUid(at * step))
    return process.memoryUsage().arrayBuffers - before
  }
  expect(bytesOf(1)).toBeLessThan(100_000)
  expect(bytesOf(5000)).toBeLessThan(100_000)
})

it('row 3: a chosen uid of the generated form is not generated again', () => {
  const number = Number(generateUid().slice('task-'.length))
  const chosen = expectUid(toUid(number + 5))
  const generated = generateUid()
  expect(generated).toBe(toUid(number + 6))
  const register = new UidRegister()
  expect(register.claim(chosen)).toBe(true)
  expect(register.claim(generated)).toBe(true)
  expect(register.claim(chosen)).toBe(false)
})

it('row 3: the largest uid of the generated form leaves generated ones as they are', () => {
  expectUid('task-99999999999999')
  // Otherwise, a resumed run would not know a generated uid as one.
  expect(parseUidNumber(generateUid())).toBeLessThan(10 ** 13)
})
