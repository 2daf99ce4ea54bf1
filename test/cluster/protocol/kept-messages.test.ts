import { expect, it } from 'vitest'
import { KeptMessages } from '../../../src/cluster/protocol/agent/kept-messages.ts'

const mebibyte = 1024 * 1024

function addTo(kept: KeptMessages, number: number, bytes: number, objectBytes = 0): void {
  const object = { prefix: 'value', title: 'the value', data: Buffer.alloc(objectBytes) }
  kept.addResults({ number, results: 1, payload: Buffer.alloc(bytes), object })
}

const numbersOf = (kept: KeptMessages): readonly number[] =>
  kept.unstored.map(({ number }) => number)

const resentOf = (kept: KeptMessages, taken = 0): readonly number[] =>
  kept.takeResent(taken).map(({ results }) => results?.number ?? 0)

it('results are kept until they are recorded and stored', () => {
  const kept = new KeptMessages()
  for (const number of [1, 2, 3]) addTo(kept, number, 10)
  kept.markStored(1)
  kept.markStored(2)
  expect(numbersOf(kept)).toEqual([3])
  kept.markRecorded(3, 3)
  expect(resentOf(kept)).toEqual([3])
  expect([1, 2, 3].map((number) => kept.isRecorded(number))).toEqual([true, true, false])
  kept.markStored(3)
  expect([resentOf(kept), kept.isRecorded(3)]).toEqual([[], true])
})

it('results that fill the memory let nothing begin until the driver has taken some', () => {
  const kept = new KeptMessages()
  for (let number = 1; number <= 8; number++) {
    addTo(kept, number, mebibyte, 9 * mebibyte)
    kept.markStored(number)
  }
  expect(kept.isFull).toBe(true)
  kept.markRecorded(0, 2)
  expect(kept.isFull).toBe(false)
  // The contents of the others are kept.
  expect(resentOf(kept)).toEqual([3, 4, 5, 6, 7, 8])
  kept.markAllUnstored()
  expect(numbersOf(kept)).toEqual([3, 4, 5, 6, 7, 8])
  addTo(kept, 9, mebibyte, 9 * mebibyte)
  expect(kept.isFull).toBe(true)
  // Nobody has them but this agent.
  kept.markRecorded(0, 9)
  expect(kept.isFull).toBe(true)
  kept.markStored(3)
  expect(kept.isFull).toBe(false)
})

it('events are kept until they are acknowledged on their link', () => {
  const kept = new KeptMessages()
  for (const number of [1, 3]) kept.addEvents(7, number, Buffer.alloc(10))
  addTo(kept, 1, 10)
  kept.addEvents(7, 5, Buffer.alloc(10))
  kept.acknowledgeEvents(8, 9)
  expect(kept.eventBytes).toBe(30)
  kept.acknowledgeEvents(7, 1)
  expect(kept.eventBytes).toBe(20)
  expect(kept.takeResent(0).map(({ events }) => events?.number ?? 'results')).toEqual([
    3,
    'results',
    5,
  ])
  expect(kept.hasEvents).toBe(false)
})
