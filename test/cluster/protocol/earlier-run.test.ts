import { describe, expect, it } from 'vitest'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import { ContinuedJobs } from '../../../src/cluster/protocol/continued-jobs.ts'
import { DriverJobs } from '../../../src/cluster/protocol/driver-jobs.ts'
import { EarlierRun } from '../../../src/cluster/protocol/earlier-run.ts'
import { RecordedMessages } from '../../../src/cluster/protocol/recorded-messages.ts'
import { packCompletions } from '../../../src/cluster/wire/completions.ts'
import { toErrorRecord } from '../../../src/foundation/error-record.ts'
import { deriveKeys, open } from '../../../src/cluster/wire/envelope.ts'
import type { ResultsMessage, HeldJob, WireResult } from '../../../src/cluster/wire/messages.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf, jobsOf } from '../../backends/local/fake-executor.ts'
import { runOf } from '../test-token.ts'
import { linkOf, remoteAgentOf } from '../driver/links.ts'
import { readMoment } from '../../../src/foundation/clock.ts'
import type { RemoteAgent } from '../../../src/cluster/protocol/remote-agent.ts'

/** An agent, and its messages that were marked. */
function createAgent() {
  const [recorded, lost]: [number[], number[]] = [[], []]
  const agent = remoteAgentOf('first')
  agent.results.markRecorded = (number) => void recorded.push(number)
  agent.results.markLost = (number) => void lost.push(number)
  return { agent, recorded, lost }
}

const held = (uid: string, attempt: number): HeldJob => ({
  uid,
  attempt,
  beganMs: 1,
  workerId: 'a/1',
})
const end = (uid: string, attempt: number): WireResult => ({
  index: 0,
  uid,
  attempt,
  beganMs: 1,
  atMs: 2,
  workerId: 'a/1',
  facts: null,
  outcome: { kind: 'complete', value: attempt },
})
const failure = (uid: string, attempt: number): WireResult => ({
  ...end(uid, attempt),
  outcome: { kind: 'fail', error: toErrorRecord(new Error(`${attempt}`)), isThrown: true },
})
const canceled = (uid: string, attempt: number): WireResult => ({
  ...end(uid, attempt),
  outcome: { kind: 'cancel', reason: 'the driver is gone' },
})
const message = (...ends: WireResult[]): ResultsMessage => ({
  kind: 'ends',
  agent: 'a',
  ahead: 1,
  completions: packCompletions([]),
  ends,
})

const onSkipped = (): never => expect.unreachable('no agent is missing')

describe('what an earlier start left', () => {
  it('an earlier run gives the latest attempt of each task once', () => {
    const earlier = new EarlierRun()
    const { agent } = createAgent()
    expect(earlier.isEmpty).toBe(true)
    earlier.addResults(message(end('ended', 2), end('ended', 1), end('retried', 1)), 1, 1)
    earlier.addHeld(agent, [held('retried', 2), held('retried', 1), held('running', 1)])
    expect(earlier.takeContinuation('ended', 1)).toEqual({
      end: end('ended', 2),
      attempt: 2,
      uncounted: 0,
    })
    expect(earlier.takeContinuation('ended', 1)).toBe(null)
    expect(earlier.takeContinuation('retried', 1)).toEqual({
      adoption: { agent, held: held('retried', 2) },
      attempt: 2,
      uncounted: 0,
    })
    expect(earlier.takeContinuation('running', 2)).toBe(null)
    expect(earlier.isEmpty).toBe(true)
  })

  it('an earlier run gives every failure of a task that has not completed, in order', () => {
    const earlier = new EarlierRun()
    const [first, third] = [failure('failed', 1), failure('failed', 3)]
    earlier.addResults(message(third, first, first, failure('done', 1)), 1, 1)
    earlier.addResults(message(end('done', 2)), 1, 1)
    expect(earlier.takeContinuation('failed', 1)).toEqual({ end: first, attempt: 1, uncounted: 0 })
    // The second one has moved, because its node was lost.
    expect(earlier.takeContinuation('failed', 2)).toEqual({ end: third, attempt: 3, uncounted: 1 })
    expect(earlier.takeContinuation('failed', 4)).toBe(null)
    expect(earlier.takeContinuation('done', 1)).toEqual({
      end: end('done', 2),
      attempt: 2,
      uncounted: 0,
    })
    expect(earlier.isEmpty).toBe(true)
  })

  it('an earlier run skips attempts that were canceled with their driver', () => {
    const earlier = new EarlierRun()
    const { agent } = createAgent()
    earlier.addResults(message(canceled('again', 1), canceled('again', 2)), 1, 1)
    earlier.addResults(
      message(canceled('failed', 1), failure('failed', 2), canceled('failed', 3)),
      1,
      1,
    )
    earlier.addResults(message(failure('held', 1), canceled('held', 2)), 1, 1)
    earlier.addHeld(agent, [held('held', 3)])
    expect(earlier.takeContinuation('again', 1)).toEqual({ attempt: 3, uncounted: 2 })
    expect(earlier.takeContinuation('failed', 1)).toMatchObject({
      end: { attempt: 2 },
      uncounted: 1,
    })
    expect(earlier.takeContinuation('failed', 3)).toEqual({ attempt: 4, uncounted: 1 })
    expect(earlier.takeContinuation('held', 1)).toMatchObject({ attempt: 3, uncounted: 1 })
  })

  it('an earlier run counts attempts on a lost agent as failures', () => {
    const earlier = new EarlierRun()
    const [lost, other] = [createAgent().agent, createAgent().agent]
    earlier.addHeld(lost, [held('one', 2), { ...held('waiting', 1), beganMs: null }])
    earlier.addHeld(other, [held('two', 1)])
    expect(earlier.removeAgent(lost, 'gone')).toMatchObject([{ uid: 'one', attempt: 2 }])
    const error = { type: 'WorkerLostError' }
    expect(earlier.takeContinuation('one', 1)).toMatchObject({
      attempt: 2,
      end: { outcome: { error } },
    })
    expect(earlier.takeContinuation('waiting', 1)).toMatchObject({ adoption: { agent: lost } })
    expect(earlier.takeContinuation('two', 1)).toMatchObject({ adoption: { agent: other } })
  })

  it('an earlier run may have more results while one of its agents is missing', () => {
    const earlier = new EarlierRun()
    earlier.addResults(message(failure('failed', 1), end('done', 1)), 1, 1)
    expect(earlier.nextUnknownAttempts('new', true)).toBe(null)
    earlier.addMissing({ name: 'a', epoch: 1 })
    earlier.addMissing({ name: 'b', epoch: 2 })
    expect(earlier.nextUnknownAttempts('new', true)).toEqual({
      agent: { name: 'b', epoch: 2 },
      attempts: 2,
    })
    // A second attempt of this start: the first one was its own.
    expect(earlier.nextUnknownAttempts('new', false)).toBe(null)
    earlier.takeContinuation('failed', 1)
    earlier.takeContinuation('done', 1)
    expect(earlier.nextUnknownAttempts('failed', false)).toEqual({
      agent: { name: 'b', epoch: 2 },
      attempts: 2,
    })
    expect(earlier.nextUnknownAttempts('failed', false)).toBe(null)
    expect(earlier.nextUnknownAttempts('done', false)).toBe(null)
    earlier.markFound({ name: 'b', epoch: 2 })
    expect(earlier.nextUnknownAttempts('other', true)).toEqual({
      agent: { name: 'a', epoch: 1 },
      attempts: 1,
    })
  })

  it('an earlier run reads completions like other results', () => {
    const earlier = new EarlierRun()
    const { outcome: _, facts: __, ...common } = end('short', 3)
    const completion = { ...common, beganMs: 1, workerId: 'a/1', value: 3 }
    earlier.addResults({ ...message(), completions: packCompletions([completion]) }, 1, 1)
    expect(earlier.takeContinuation('short', 1)).toMatchObject({ end: end('short', 3) })
  })
})

describe('messages of agents', () => {
  it('messages of agents are recorded when all of their results are, in order', () => {
    const messages = new RecordedMessages()
    const { agent, recorded } = createAgent()
    const first = messages.createMessage(agent, 1, 2)
    const second = messages.createMessage(agent, 2, 3)
    const [a, b, c, d, e, f] = [
      jobOf('a'),
      jobOf('b'),
      jobOf('c'),
      jobOf('d'),
      jobOf('e'),
      jobOf('f'),
    ]
    messages.markReported(first, a)
    messages.markReported(second, b)
    messages.markReported(null, c)
    messages.markReported(first, d)
    messages.markDropped(second)
    messages.markReported(second, e)
    messages.markRecorded([a, b, c])
    expect(recorded).toEqual([])
    messages.markRecorded([d])
    expect(recorded).toEqual([1])
    messages.markRecorded([e])
    expect(recorded).toEqual([1, 2])
    messages.markReported(messages.createMessage(agent, 3, 1), f)
    messages.markRecorded([f])
    expect(recorded).toEqual([1, 2, 3])
  })

  it('row 124: messages of agents are lost if the session left out one of their results', () => {
    const messages = new RecordedMessages()
    const { agent, recorded, lost } = createAgent()
    const jobs = jobsOf(5)
    const [first, second] = [
      messages.createMessage(agent, 1, 2),
      messages.createMessage(agent, 2, 2),
    ]
    for (const [at, job] of jobs.entries()) {
      messages.markReported([first, first, second, second, null][at] ?? null, job)
    }
    // The lines of the others were lost on a full disk.
    messages.markRecorded(jobs.slice(2, 4))
    expect([recorded, lost]).toEqual([[2], [1]])
    messages.markRecorded(jobs.slice(4))
    expect([recorded, lost]).toEqual([[2], [1]])
  })
})

it('an end of an earlier start is taken, although its attempt was sent to an agent', async () => {
  const clock = new ManualClock()
  const { toAgent } = deriveKeys('a token of the test', runOf('session'))
  const published: unknown[] = []
  const publish = (subject: string, data: Uint8Array): void => {
    published.push(open(toAgent, subject, data).payload)
  }
  const link = linkOf(clock, { publish, maxPayload: 1_000_000 } as Partial<Broker> as Broker)
  const { agent } = link
  const listener = { report() {}, notice() {} }
  const jobs = new DriverJobs(listener, () => readMoment(clock))
  const { facts } = agent.announcement
  jobs.addAgent(agent.announcement, { ...facts, ahead: 4 })
  for (const uid of ['ended', 'other', 'retried']) {
    jobs.placement.push(jobs.add(jobOf(uid), 0))
  }
  for (const one of jobs.placement.assign().get('first') ?? []) jobs.assign(one, agent, 0)
  expect(agent.jobs.toArray()).toHaveLength(3)
  const earlier = new EarlierRun()
  const taken: unknown[] = []
  const reportResult = ({ uid }: { readonly uid: string }, one: WireResult): void => {
    taken.push([uid, one.outcome])
  }
  const continued = new ContinuedJobs({
    jobs,
    earlier,
    reportResult,
    agents: new Map([['first', agent]]),
    listener,
    onSkipped,
  })
  earlier.addResults(message(end('ended', 1), canceled('retried', 1)), 1, 1)
  continued.continueWaitingJobs()
  expect(taken).toEqual([['ended', { kind: 'complete', value: 1 }]])
  expect(agent.jobs.toArray().map(({ uid }) => uid)).toEqual(['other', 'retried'])
  await clock.advance(0)
  const reason = 'an earlier start has ended it'
  expect(published).toEqual([{ kind: 'cancel', jobs: [['ended', 1]], reason }])
})

it('a begun attempt of a missing agent is skipped and reported, whatever its number is', () => {
  const moved: unknown[] = []
  const skipped: unknown[] = []
  const listener = { report() {}, notice: (notice: unknown) => void moved.push(notice) }
  const jobs = new DriverJobs(listener, () => readMoment(new ManualClock()))
  for (const isRetry of [false, true]) {
    const uid = isRetry ? 'retried' : 'resumed'
    jobs.placement.push(jobs.add({ ...jobOf(uid), attempt: 2, isRetry }, 0))
  }
  const earlier = new EarlierRun()
  earlier.addMissing({ name: 'gone', epoch: 7 })
  const continued = new ContinuedJobs({
    jobs,
    earlier,
    reportResult: () => expect.unreachable(),
    agents: new Map(),
    listener,
    onSkipped: ({ name }, attempts) => skipped.push([name, attempts]),
  })
  continued.continueInitialJobs()
  expect(moved).toMatchObject([{ nodeId: 'gone', fields: { count: 1, tasks: ['resumed'] } }])
  expect(skipped).toEqual([['gone', [['resumed', 2]]]])
})

it.each([
  [false, 'late', 'first'],
  [true, 'first', 'late'],
])('one of two agents goes on with an attempt that both have', (isStarted, kept, other) => {
  const clock = new ManualClock()
  const cancels: unknown[] = []
  const agentOf = (name: string): RemoteAgent =>
    remoteAgentOf(name, undefined, (uid, attempt) => cancels.push([name, uid, attempt]))
  const [first, late] = [agentOf('first'), agentOf('late')]
  const agents = new Map([first, late].map((agent) => [agent.name, agent]))
  const moved: unknown[] = []
  const listener = { report() {}, notice: (notice: unknown) => void moved.push(notice) }
  const jobs = new DriverJobs(listener, () => readMoment(clock))
  for (const { announcement } of [first, late]) {
    jobs.addAgent(announcement, { ...announcement.facts, ahead: 1 })
  }
  const one = jobs.add(jobOf('both'), 0)
  jobs.assign(one, first, 0)
  if (isStarted) jobs.reportStart(one, first, { beganMs: 0, workerId: 'first/1' }, jobs.readTime())
  const earlier = new EarlierRun()
  const reportResult = (): never => expect.unreachable()
  const continued = new ContinuedJobs({ jobs, earlier, reportResult, agents, listener, onSkipped })
  earlier.addHeld(late, [held('both', 1)])
  continued.continueWaitingJobs()
  expect(cancels).toEqual([[other, 'both', 1]])
  expect(one.agent?.name).toBe(kept)
  expect(moved).toMatchObject([{ kind: 'event' }])
})
