import { expect, it } from 'vitest'
import {
  type SealedResults,
  UnrecordedResults,
} from '../../../src/cluster/protocol/unrecorded-results.ts'

const mebibyte = 1024 * 1024

const endsData = (number: number, bytes: number, objectBytes = 0): SealedResults => ({
  number,
  data: Buffer.alloc(bytes),
  uids: [`task-${number}`],
  objects: [{ prefix: 'value', title: 'the value', data: Buffer.alloc(objectBytes) }],
})

it('ends are kept until they are recorded, and sent again if the stream has lost them', () => {
  const kept = new UnrecordedResults()
  for (const number of [1, 2, 3]) kept.add(endsData(number, 10))
  expect(kept.unstored.map(({ number }) => number)).toEqual([1, 2, 3])
  kept.markStored(1)
  kept.markStored(2)
  expect([kept.isUnstored(2), kept.isUnstored(3)]).toEqual([false, true])
  // The third is on its way anyway.
  expect(kept.markLost(2, 3).map(({ number }) => number)).toEqual([2])
  expect(kept.unstored.map(({ number }) => number)).toEqual([2, 3])
  expect(kept.markLost(2, 3)).toEqual([])
  // A later start of the driver looks for the others in the stream.
  expect(kept.markRecorded(3)).toEqual(['task-1'])
  expect(kept.numbers).toEqual([2, 3])
  expect([1, 2, 4].map((number) => kept.isRecorded(number))).toEqual([true, false, false])
  kept.markStored(2)
  kept.markStored(3)
  expect(kept.markRecorded(3)).toEqual(['task-2', 'task-3'])
  expect(kept.numbers).toEqual([])
})

it('ends that fill the memory let nothing begin until the driver has taken some', () => {
  const kept = new UnrecordedResults()
  for (let number = 1; number <= 8; number++) {
    kept.add(endsData(number, mebibyte, 9 * mebibyte))
    kept.markStored(number)
  }
  expect(kept.isFull).toBe(true)
  kept.markReceived(2)
  expect(kept.isFull).toBe(false)
  // Their tasks are known until they are recorded, and what the driver has is not sent again.
  expect(kept.markLost(1, 8).map(({ number }) => number)).toEqual([3, 4, 5, 6, 7, 8])
  // A later start does not wait for them either, and may send their tasks again.
  expect(kept.numbers).toEqual([3, 4, 5, 6, 7, 8])
  expect(['task-2', 'task-3'].map((uid) => kept.isDropped(uid))).toEqual([true, false])
  expect(kept.markRecorded(2)).toEqual(['task-1', 'task-2'])
  kept.add(endsData(9, mebibyte, 9 * mebibyte))
  expect(kept.isFull).toBe(true)
  // Nobody has them but this agent.
  kept.markReceived(9)
  expect(kept.isFull).toBe(true)
  kept.markStored(3)
  expect(kept.isFull).toBe(false)
})
