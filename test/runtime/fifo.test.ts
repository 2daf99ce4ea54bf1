import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Fifo, Semaphore } from '../../src/runtime/fifo.ts'
import { assertProperty } from '../property.ts'

it('a Fifo gives its items in the order of their arrival, however many come and go', () => {
  const step = fc.oneof(
    fc.record({ push: fc.nat(3000) }),
    fc.record({ shift: fc.nat(3000) }),
    fc.record({ take: fc.nat(3000) }),
    fc.constant({ clear: true }),
  )
  assertProperty(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const fifo = new Fifo<number>()
      let plain: number[] = []
      let next = 0
      for (const one of steps) {
        if ('push' in one)
          for (let at = 0; at < one.push; at++) plain.push((fifo.push(next), next++))
        if ('shift' in one) {
          const given = Array.from({ length: one.shift }, () => fifo.shift())
          expect(given.filter((item) => item !== undefined)).toEqual(plain.splice(0, one.shift))
        }
        if ('take' in one) expect(fifo.shiftMany(one.take)).toEqual(plain.splice(0, one.take))
        if ('clear' in one) {
          fifo.clear()
          plain = []
        }
        expect(fifo.length).toBe(plain.length)
      }
    }),
    { numRuns: 100 },
  )
})

it('semaphore: runs up to its limit at a time, in order, also after a failure', async () => {
  const semaphore = new Semaphore(2)
  const work = Array.from({ length: 5 }, () => Promise.withResolvers<number>())
  const started: number[] = []
  const runs = work.map(({ promise }, at) =>
    semaphore.run(() => {
      started.push(at)
      return promise
    }),
  )
  const results = Promise.allSettled(runs)
  expect(started).toEqual([0, 1])
  work[1]?.reject(new Error('no'))
  await Promise.allSettled([runs[1]])
  expect(started).toEqual([0, 1, 2])
  for (const [at, { resolve }] of work.entries()) resolve(at)
  const states = (await results).map(({ status }) => status === 'fulfilled')
  expect(states).toEqual([true, false, true, true, true])
  expect(started).toEqual([0, 1, 2, 3, 4])
})
