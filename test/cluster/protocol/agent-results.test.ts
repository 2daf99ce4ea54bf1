import { expect, it } from 'vitest'
import { AgentResults } from '../../../src/cluster/protocol/agent-results.ts'
import { NumberSet } from '../../../src/cluster/protocol/number-set.ts'

it('an agent with many results is told what is recorded of them before the next tick', () => {
  const results = new AgentResults()
  results.attach(new NumberSet(), { endsEpoch: 7, endMessages: 0, unrecorded: [] }, false)
  // Two thousand results of functions without a value.
  const bytes = 2000 * 32
  results.markDelivered(1, bytes)
  results.markRecorded(1)
  expect(results.isReportUrgent).toBe(false)
  results.markDelivered(2, bytes)
  expect(results.isReportUrgent).toBe(true)
  expect(results.takeReport()).toEqual({ through: 1, taken: 2 })
  expect([results.isReportUrgent, results.takeReport()]).toEqual([false, null])
})

it('row 98: any number of messages with results in the answer of an agent costs no time', () => {
  const results = new AgentResults()
  const [endMessages, later] = [1e15, 2e15]
  const received = new NumberSet()
  for (const number of [5, 8, later]) received.add(number)
  const state = { endsEpoch: 7, endMessages, unrecorded: [5, 8, 3] }
  results.attach(received, state, false, new Set([8]))
  expect(
    [2, 3, 4, 5, 6, endMessages, endMessages + 1, later].map((one) => received.has(one)),
  ).toEqual([true, false, true, true, true, true, false, true])
  expect([5, 8, later].map((number) => results.isUnread(number))).toEqual([false, true, false])
  // The message that was missing arrives: all before the unread one are recorded.
  results.markRecorded(3)
  results.markDelivered(3, 100_000)
  expect(results.takeReport()).toEqual({ through: 7, taken: endMessages })
})

it('an agent is asked for messages that it had sent before the last check', () => {
  const results = new AgentResults()
  const received = new NumberSet()
  results.attach(received, { endsEpoch: 7, endMessages: 0, unrecorded: [] }, false)
  results.sent = 3
  // They may still be in transit.
  expect([results.isMissing(), results.missing]).toEqual([false, null])
  received.add(1)
  expect([results.isMissing(), results.missing]).toEqual([true, { from: 2, to: 3 }])
  received.addRange({ from: 2, to: 3 }, [])
  expect([results.isMissing(), results.missing]).toEqual([false, null])
})

it('an unread message is given up when a thousand later messages have been sent', () => {
  const results = new AgentResults()
  const received = new NumberSet()
  received.add(1)
  results.attach(received, { endsEpoch: 7, endMessages: 1, unrecorded: [1] }, true, new Set([1]))
  results.sent = 1001
  results.giveUpUnread()
  expect([results.isUnread(1), results.takeReport()]).toEqual([true, { through: 0, taken: 1 }])
  results.sent = 1002
  results.giveUpUnread()
  expect([results.isUnread(1), results.takeReport()]).toEqual([false, { through: 1, taken: 1 }])
})
