/** A valid message of each kind, with all of its fields, and messages with a field spoiled. */

import fc from 'fast-check'
import { packCompletions } from '../../src/cluster/wire/completions.ts'
import { runOf } from './test-token.ts'

const facts = { cores: 1, gpus: 0, memoryMb: 1000, labels: {} }
const offer = { cores: 1, gpus: 0, memoryMb: 1000, ahead: 1 }
const sent = { index: 0, uid: 'task', attempt: 1 }
const start = { ...sent, atMs: 1, workerId: 'first/1' }
const event = { eventType: 'a.B', schema: {}, fields: {}, taskId: null, atMs: 1 }
const completion = { ...sent, beganMs: 0, atMs: 1, workerId: 'first/1', value: 1 }
const resources = { cores: 1, gpus: 0, memoryMb: 0, ranks: 1 }
const spec = { kind: 'program', executable: 'true', arguments: [], resources, priority: 0 }
const announcement = {
  kind: 'announcement',
  name: 'forged',
  epoch: 7,
  host: 'host',
  pid: 1,
  version: '0.0.0',
  state: 'ready',
  facts,
  sessions: 0,
  refusedMessages: 0,
  only: null,
  allow: ['/bin/*'],
} as const

/** Requests that an agent answers. */
export const requests = [
  { kind: 'ping' },
  { kind: 'challenge', use: { sessionId: 'session', backend: 'cluster' }, run: 'run' },
  {
    kind: 'attach',
    ...runOf('session'),
    nonce: 1,
    epoch: 1,
    link: 1,
    ownerTtlSeconds: 60,
    resultTtlSeconds: 60,
    agentTimeoutSeconds: 60,
    folder: '/',
  },
  { kind: 'detach', ...runOf('session'), epoch: 1, reason: 'closed' },
  { kind: 'sample', sampler: 'one', step: 'first' },
] as const

/** What a driver sends to the agents of its session. */
export const driverMessages = [
  {
    kind: 'beat',
    hasWaiting: false,
    waitingPriorities: { lowest: Infinity, highest: 0 },
    hasIdle: true,
    agents: 1,
    hasStream: true,
    lostStreams: 0,
    needsRoom: false,
  },
  {
    kind: 'jobs',
    definitions: [{ module: 'file:///a.ts', name: 'a' }],
    functions: {
      indexes: new Uint32Array([0]),
      uids: 'task',
      attempts: null,
      definitions: null,
      args: [[1]],
      options: [{ priority: 1 }],
    },
    others: [{ ...sent, spec, specObject: null, after: 0 }],
  },
  { kind: 'cancel', jobs: [['task', 1]], reason: 'canceled' },
  { kind: 'recall', jobs: [['task', 1]] },
  { kind: 'recorded', through: 1, taken: 1, lost: [1] },
  { kind: 'missing', from: 1, to: 1 },
] as const

/** What agents and their watchers announce. */
export const announcements = [
  announcement,
  { kind: 'watcher-report', state: 'dead', agent: announcement, silentSeconds: 1 },
] as const

/** What an agent answers. */
export const answers = [
  { kind: 'pong', epoch: 1, receivedMs: 1, sentMs: 1 },
  { kind: 'challenged', nonce: 1, latestStart: 0 },
  {
    kind: 'attached',
    epoch: 1,
    offer,
    held: [{ uid: 'task', attempt: 1, beganMs: null, workerId: null }],
    endsEpoch: 1,
    endMessages: 0,
    unrecorded: [1],
  },
  { kind: 'refused', code: 'SessionInUseError', message: 'in use' },
  { kind: 'detached', isSuperseded: false },
] as const

/** What an agent sends to the driver of a session. */
export const agentMessages = [
  {
    kind: 'report',
    offer,
    starts: [start],
    returned: [{ ...sent, notAllowed: { message: 'no', hint: 'never' } }],
    events: [event],
    lostBundles: ['digest'],
    endMessages: 1,
    needsRoom: false,
  },
  {
    kind: 'ends',
    agent: 'first',
    ahead: 1,
    completions: packCompletions([completion]),
    ends: [
      {
        ...sent,
        beganMs: null,
        atMs: 1,
        workerId: null,
        facts: null,
        outcome: { kind: 'cancel', reason: 'canceled' },
      },
    ],
    events: { link: 1, number: 1 },
    reports: [{ link: 1, number: 1, starts: [start], events: [event] }],
  },
] as const

/** Of no type that a field of a message has. */
const wrongValues = ['wrong', NaN, 7n, new Date(0), ['wrong'], { wrong: 1 }]

const optionalFields = new Set([
  'challenge.use',
  'challenge.run',
  'challenged.latestStart',
  'recorded.lost',
  'beat.waitingPriorities',
  'ends.events',
  'ends.reports',
])

/** One of the messages, without one of its fields, or with a value of another type in it. */
export const spoiled = (messages: readonly { readonly kind: string }[]): fc.Arbitrary<object> => {
  const cases = messages.flatMap((message) =>
    Object.entries(message).flatMap(([field, value]) => {
      const { [field]: _, ...others } = message as Readonly<Record<string, unknown>>
      const isOptional = optionalFields.has(`${message.kind}.${field}`)
      const wrong = wrongValues
        .filter((one) => typeof one !== typeof value || Number.isNaN(one))
        .concat(Array.isArray(value) ? [{ wrong: 1 }] : [])
      const changed = wrong.map((one) => ({ ...others, [field]: one }))
      return isOptional ? changed : [others, ...changed]
    }),
  )
  return fc.constantFrom(...cases)
}
