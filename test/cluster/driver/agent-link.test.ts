import { expect, it } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { NumberSet } from '../../../src/cluster/driver/number-set.ts'
import { deriveKeys, open } from '../../../src/cluster/wire/envelope.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { runOf } from '../test-token.ts'
import { linkOf } from './links.ts'

it('an agent with many ends is told what is recorded of them before the next tick', () => {
  const { toAgent } = deriveKeys('a token of the test', runOf('session'))
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(toAgent, subject, data).payload)
  }
  const link = linkOf(new ManualClock(), { publish } as Partial<Broker> as Broker)
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const told = { epoch: 1, offer, held: [], endsEpoch: 7, endMessages: 0, unrecorded: [] }
  link.markAttached(new NumberSet(), { kind: 'attached', ...told }, false)
  // Two thousand results of functions without a value.
  const bytes = 2000 * 32
  link.markReceived(1, bytes)
  link.markRecorded(1)
  expect(published).toEqual([])
  link.markReceived(2, bytes)
  expect(published).toEqual([{ kind: 'recorded', through: 1, taken: 2 }])
})

it('row 98: any number of messages with results in the answer of an agent costs no time', () => {
  const { toAgent } = deriveKeys('a token of the test', runOf('session'))
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(toAgent, subject, data).payload)
  }
  const link = linkOf(new ManualClock(), { publish } as Partial<Broker> as Broker)
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const [endMessages, later] = [1e15, 2e15]
  const told = { epoch: 1, offer, held: [], endsEpoch: 7, endMessages, unrecorded: [5, 8, 3] }
  const received = new NumberSet()
  for (const number of [5, 8, later]) received.add(number)
  link.markAttached(received, { kind: 'attached', ...told }, false, new Set([8]))
  expect(
    [2, 3, 4, 5, 6, endMessages, endMessages + 1, later].map((one) => received.has(one)),
  ).toEqual([true, false, true, true, true, true, false, true])
  expect([5, 8, later].map((number) => link.isUnread(number))).toEqual([false, true, false])
  // The message that was missing arrives: all before the unread one are recorded.
  link.markRecorded(3)
  link.markReceived(3, 100_000)
  expect(published).toEqual([{ kind: 'recorded', through: 7, taken: endMessages }])
})
