import { describe, expect, it } from 'vitest'
import type { Job, TaskReport } from '../../../src/backends/backend.ts'
import type { Broker, BrokerStore, StoredMessage } from '../../../src/cluster/broker/broker.ts'
import type { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import type { AgentLink } from '../../../src/cluster/driver/agent-link.ts'
import { DriverJobs } from '../../../src/cluster/protocol/driver-jobs.ts'
import { EarlierRun } from '../../../src/cluster/protocol/earlier-run.ts'
import { ResultReceiver } from '../../../src/cluster/driver/result-receiver.ts'
import { encode } from '../../../src/cluster/wire/codec.ts'
import { packCompletions } from '../../../src/cluster/wire/completions.ts'
import { deriveKeys, open, seal } from '../../../src/cluster/wire/envelope.ts'
import type {
  AgentReport,
  ResultsMessage,
  EventsMark,
  WireResult,
} from '../../../src/cluster/wire/messages.ts'
import { sessionSubjects } from '../../../src/cluster/wire/subjects.ts'
import { type Clock, readMoment } from '../../../src/foundation/clock.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'
import { linkOf } from './links.ts'
import { runOf, useOf } from '../test-token.ts'

const keys = deriveKeys('a token of the test', runOf('session'))
const subjects = sessionSubjects(useOf('session'))
const endsEpoch = 7

function endsOf(uid: string, number: number, events?: EventsMark): StoredMessage {
  const subject = subjects.agentResults('first')
  const times = { beganMs: 0, atMs: 1, workerId: 'first/w1' }
  const completions = packCompletions([{ index: 0, uid, attempt: 1, ...times, value: 1 }])
  const common = { kind: 'ends', agent: 'first', ahead: 1, completions, ends: [] } as const
  const message: ResultsMessage = events === undefined ? common : { ...common, events }
  const header = { epoch: endsEpoch, number, acknowledged: 0 }
  return { subject, data: seal(keys.toDriver, subject, header, message) }
}

/** For a driver with one agent; only results of known tasks may arrive. */
const openReceiver = (
  jobs: DriverJobs,
  link: AgentLink,
  clock: Clock,
  store: Partial<BrokerStore> = {},
  objects: Partial<StoredObjects> = {},
): ResultReceiver =>
  new ResultReceiver({
    clock,
    key: () => keys.toDriver,
    subjects,
    store: store as BrokerStore,
    objects: objects as StoredObjects,
    jobs,
    earlier: new EarlierRun(),
    links: new Map([['first', link]]),
    onEvents: () => expect.unreachable(),
    onEarlier: () => expect.unreachable(),
    onRefused: (reason) => expect.unreachable(reason),
    onFailed: (error) => expect.unreachable(String(error)),
    onValueLost: () => expect.unreachable(),
  })

it('ends that come while a lost agent attaches again are recorded after its answer', async () => {
  const clock = new ManualClock()
  const stale: string[] = []
  const jobs = new DriverJobs({ report() {}, notice: ({ kind }) => void stale.push(kind) }, () =>
    readMoment(clock),
  )
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(keys.toAgent, subject, data).payload)
  }
  const link = linkOf(clock, { publish } as Partial<Broker> as Broker)
  const stored = [endsOf('moved', 1)]
  const store: Partial<BrokerStore> = {
    read: () => Promise.resolve({ messages: stored, position: { created: '', sequence: 1 } }),
  }
  const receiver = openReceiver(jobs, link, clock, store)
  const received = receiver.acceptEpoch(endsEpoch)
  // It was sent after the agent's answer, which is read later.
  for (const { subject, data } of stored) receiver.receive(subject, data)
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const told = { epoch: 1, offer, held: [], endsEpoch, endMessages: 0, unrecorded: [] }
  link.markAttached(received, { kind: 'attached', ...told }, false)
  const { results } = link.agent
  results.sent = 1
  results.isMissing()
  expect(results.isMissing()).toBe(true)
  await receiver.readStream(subjects.agentResults('first'))
  link.tick()
  expect([published, stale]).toEqual([[{ kind: 'recorded', through: 1, taken: 1 }], ['event']])
  expect(results.isMissing()).toBe(false)
})

it('a large value that the server has lost is asked for until its agent stores it', async () => {
  const clock = new ManualClock()
  const values: unknown[] = []
  const jobs = new DriverJobs(
    {
      report(_, report) {
        if (report.kind === 'complete') values.push(report.value)
      },
      notice() {},
    },
    () => readMoment(clock),
  )
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(keys.toAgent, subject, data).payload)
  }
  const link = linkOf(clock, { publish } as Partial<Broker> as Broker)
  let stored: Buffer | null = null
  const objects: Partial<StoredObjects> = {
    readAndDelete: () => Promise.resolve(stored),
    closed: new AbortController().signal,
  }
  const receiver = openReceiver(jobs, link, clock, {}, objects)
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const told = { epoch: 1, offer, held: [], endsEpoch, endMessages: 0, unrecorded: [] }
  link.markAttached(receiver.acceptEpoch(endsEpoch), { kind: 'attached', ...told }, false)
  const one = jobs.add(jobOf('large'), 0)
  jobs.assign(one, link.agent, 0)
  const subject = subjects.agentResults('first')
  const end: WireResult = {
    index: 0,
    uid: 'large',
    attempt: 1,
    beganMs: 0,
    atMs: 1,
    workerId: 'first/w1',
    facts: null,
    outcome: { kind: 'complete-large', object: 'large/1/value/digest' },
  }
  const none = packCompletions([])
  const message: ResultsMessage = {
    kind: 'ends',
    agent: 'first',
    ahead: 1,
    completions: none,
    ends: [end],
  }
  const header = { epoch: endsEpoch, number: 1, acknowledged: 0 }
  receiver.receive(subject, seal(keys.toDriver, subject, header, message))
  await clock.advance(0)
  link.tick()
  expect([published, values]).toEqual([[{ kind: 'missing', from: 1, to: 1 }], []])
  stored = encode('the value')
  await clock.advance(600)
  expect(values).toEqual(['the value'])
  jobs.recorded.markRecorded([one.job])
  link.tick()
  expect(published).toEqual([
    { kind: 'missing', from: 1, to: 1 },
    { kind: 'recorded', through: 1, taken: 1 },
  ])
})

it.each([
  ['agent closed', ['task']],
  ['the driver is gone', []],
])(
  'a running task that its agent ended (%s) belongs to what left with it, or not',
  (reason, left) => {
    const clock = new ManualClock()
    const jobs = new DriverJobs({ report() {}, notice() {} }, () => readMoment(clock))
    const link = linkOf(clock, { publish() {} } as Partial<Broker> as Broker)
    const receiver = openReceiver(jobs, link, clock)
    const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
    const told = { epoch: 1, offer, held: [], endsEpoch, endMessages: 0, unrecorded: [] }
    link.markAttached(receiver.acceptEpoch(endsEpoch), { kind: 'attached', ...told }, false)
    jobs.assign(jobs.add(jobOf('task'), 0), link.agent, 0)
    const outcome = { kind: 'cancel', reason } as const
    const times = { beganMs: 0, atMs: 1, workerId: 'first/w1', facts: null }
    const ends = [{ index: 0, uid: 'task', attempt: 1, ...times, outcome }]
    const subject = subjects.agentResults('first')
    const completions = packCompletions([])
    const message: ResultsMessage = { kind: 'ends', agent: 'first', ahead: 1, completions, ends }
    const header = { epoch: endsEpoch, number: 1, acknowledged: 0 }
    receiver.receive(subject, seal(keys.toDriver, subject, header, message))
    expect(link.agent.abandoned).toEqual(left)
  },
)

describe('ends of tasks that told something before', () => {
  const offer = { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }
  const empty = { starts: [], returned: [], events: [], lostBundles: [], needsRoom: false }
  const report: AgentReport = { kind: 'report', offer, endMessages: 1, ...empty }

  function start() {
    const clock = new ManualClock()
    const ended: string[] = []
    const listener = {
      report: ({ uid }: Job, { kind }: TaskReport) => void (kind === 'complete' && ended.push(uid)),
      notice() {},
    }
    const jobs = new DriverJobs(listener, () => readMoment(clock))
    const published: unknown[] = []
    const publish = (subject: string, data: Uint8Array): void => {
      published.push(open(keys.toAgent, subject, data).payload)
    }
    const link = linkOf(clock, { publish } as Partial<Broker> as Broker)
    const receiver = openReceiver(jobs, link, clock)
    const told = { epoch: 1, offer, held: [], endsEpoch, endMessages: 0, unrecorded: [] }
    link.markAttached(receiver.acceptEpoch(endsEpoch), { kind: 'attached', ...told }, false)
    jobs.assign(jobs.add(jobOf('teller'), 0), link.agent, 0)
    const tell = (number: number): void => {
      const subject = subjects.fromAgent('first')
      const header = { epoch: 1, number, acknowledged: 0 }
      link.receive(subject, seal(keys.toDriver, subject, header, report))
    }
    const end = (events: EventsMark): void => {
      const { subject, data } = endsOf('teller', 1, events)
      receiver.receive(subject, data)
    }
    return { link, ended, published, tell, end }
  }

  it("a result counts after the task's earlier reports, which are requested", () => {
    const { ended, published, tell, end } = start()
    end({ link: 1, number: 2 })
    expect(published).toEqual([true])
    tell(2)
    tell(1)
    expect(ended).toEqual([])
    tell(2)
    expect(ended).toEqual(['teller'])
  })

  it('a result counts immediately if no earlier report can come any more', () => {
    const { link, ended, end } = start()
    end({ link: 1, number: 2 })
    expect(ended).toEqual([])
    link.ignoreEvents()
    expect(ended).toEqual(['teller'])
  })

  it('a result counts immediately if its reports went to an earlier use of the agent', () => {
    const other = start()
    other.end({ link: 3, number: 2 })
    expect(other.ended).toEqual(['teller'])
    const come = start()
    come.tell(1)
    come.end({ link: 1, number: 1 })
    expect(come.ended).toEqual(['teller'])
  })
})
