import { expect, it } from 'vitest'
import {
  chooseBatchSize,
  JobDurations,
} from '../../../../src/backends/local/functions/batch-size.ts'
import { bankSize } from '../../../../src/backends/local/functions/mailbox.ts'

it.each([
  ['nothing is known yet', 1000, 4, null, 1],
  ['few wait: every worker gets its share, however short they were', 4, 4, 0.001, 1],
  ['some wait', 10, 4, 0.001, 3],
  ['many short ones wait', 100_000, 2, 0.001, bankSize],
  ['a batch lasts for some milliseconds', 100_000, 2, 0.5, 6],
  ['long ones go alone', 100_000, 2, 40, 1],
  ['no time at all', 100_000, 2, 0, bankSize],
] as const)('a batch has the right size when %s', (_, waiting, workers, meanMs, size) => {
  expect(chooseBatchSize(waiting, workers, meanMs)).toBe(size)
})

it('the mean follows what jobs take now, and one slow job does not end the batching', () => {
  const durations = new JobDurations()
  for (let count = 0; count < 100; count++) durations.add(0.01)
  expect([durations.meanMs, durations.areShort]).toEqual([expect.closeTo(0.01, 6), true])
  durations.add(60_000)
  expect(durations.meanMs).toBeLessThan(3)
  for (let count = 0; count < 200; count++) durations.add(20)
  expect(durations.meanMs).toBeCloseTo(20, 1)
})

it.each([
  [0.99, true],
  [1, false],
])('jobs of %d ms are short: %s', (ms, areShort) => {
  const durations = new JobDurations()
  expect(durations.areShort).toBe(false)
  durations.add(ms)
  expect(durations.areShort).toBe(areShort)
})
