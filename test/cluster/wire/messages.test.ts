import { expect, it } from 'vitest'
import { decode, encode } from '../../../src/cluster/wire/codec.ts'
import { expectMessage } from '../../../src/cluster/wire/messages.ts'
import { assertProperty } from '../../property.ts'
import fc from 'fast-check'
import {
  agentMessages,
  announcements,
  answers,
  driverMessages,
  requests,
  spoiled,
} from '../sample-messages.ts'

const messages = [...requests, ...driverMessages, ...announcements, ...answers, ...agentMessages]
const kinds = messages.map(({ kind }) => kind)

it('row 98: a message of each kind is accepted as it was sent', () => {
  for (const message of messages) {
    expect(expectMessage(decode(encode(message)), message.kind)).toEqual(message)
  }
})

it('row 98: a message without a field, or with one of a wrong type, is refused', () => {
  const reason = /^its (?:kind is not known|field [\w.-]+ is missing or has a wrong type)$/
  assertProperty(
    fc.property(spoiled(messages), (message) => {
      expect(() => expectMessage(decode(encode(message)), ...kinds)).toThrow(reason)
    }),
    { numRuns: 3000 },
  )
  for (const payload of [undefined, null, 1, 'ping', []]) {
    expect(() => expectMessage(payload, ...kinds)).toThrow('its kind is not known')
  }
})

it('row 98: numbers that no sender counts to are refused', () => {
  const [, jobs] = driverMessages
  const [other] = jobs.others
  const refused = [0, -1, 0.5, 1e300, Infinity].map((cores) => {
    const spec = { ...other?.spec, resources: { ...other?.spec.resources, cores } }
    return { ...jobs, others: [{ ...other, spec }] }
  })
  const answer = answers.find(({ kind }) => kind === 'attached')
  const counts = [-1, 0.5, 1e300, Infinity].map((resent) => ({ ...answer, resent }))
  for (const message of [...refused, ...counts]) {
    expect(() => expectMessage(decode(encode(message)), ...kinds)).toThrow('has a wrong type')
  }
})

it('row 98: an error that contains itself is refused', () => {
  const error = { isError: true, type: 'E', name: 'E', message: '', stack: '', fields: {} }
  const cyclic = Object.assign(error, { cause: error })
  const [, ends] = agentMessages
  const outcome = { kind: 'fail', error: cyclic, isThrown: true }
  const message = { ...ends, ends: [{ ...ends.ends[0], outcome }] }
  expect(() => expectMessage(decode(encode(message)), 'ends')).toThrow()
})
