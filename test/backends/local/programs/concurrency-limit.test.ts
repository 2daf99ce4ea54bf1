import { expect, it } from 'vitest'
import { ConcurrencyLimit } from '../../../../src/backends/local/programs/concurrency-limit.ts'

const succeed = (limit: ConcurrencyLimit, times: number) => {
  for (let count = 0; count < times; count++) limit.succeed()
}

it('row 29: falls to what the system bears and tells each new depth once', () => {
  const limit = new ConcurrencyLimit(10)
  expect(limit.refuse(6)).toBe(true)
  expect(limit.limit).toBe(6)
  expect(limit.refuse(6)).toBe(false)
  expect(limit.refuse(9)).toBe(false)
  expect(limit.limit).toBe(6)
  expect(limit.refuse(0)).toBe(true)
  expect(limit.limit).toBe(1)
})

it('row 29: rises by one with each round of successes, up to where it began', () => {
  const limit = new ConcurrencyLimit(4)
  limit.refuse(2)
  succeed(limit, 1)
  expect(limit.limit).toBe(2)
  succeed(limit, 1)
  expect(limit.limit).toBe(3)
  expect(limit.refuse(2)).toBe(false)
  succeed(limit, 2 + 3 + 100)
  expect(limit.limit).toBe(4)
  expect(limit.refuse(2)).toBe(true)
})

it('row 29: pauses twice as long after each refusal in a row, up to a second', () => {
  const limit = new ConcurrencyLimit(4)
  const pauses = Array.from({ length: 8 }, () => limit.nextPauseMs(0))
  expect(pauses).toEqual([20, 40, 80, 160, 320, 640, 1000, 1000])
  limit.succeed()
  expect(limit.nextPauseMs(0)).toBe(20)
})
