import { expect, it } from 'vitest'
import { type DriverJob, RemoteAgent } from '../../../src/cluster/protocol/driver/remote-agent.ts'
import { noRules } from '../../../src/cluster/wire/agent-rules.ts'
import { DriverJobs } from '../../../src/cluster/protocol/driver/driver-jobs.ts'
import { ClockOffset } from '../../../src/cluster/protocol/driver/clock-offset.ts'
import { toEndMoment } from '../../../src/cluster/protocol/driver/job-times.ts'
import { TaskProgress } from '../../../src/events/library-events.ts'
import type { Moment } from '../../../src/tasks/lifecycle.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'
import { readMoment } from '../../../src/foundation/clock.ts'

/** An agent "first" with one core. */
const createAgent = (offset = new ClockOffset()): RemoteAgent =>
  new RemoteAgent(
    {
      announcement: {
        kind: 'announcement',
        name: 'first',
        start: 1,
        host: 'first',
        pid: 1,
        version: '0.0.0',
        state: 'ready',
        facts: { cores: 1, gpus: 0, memoryMb: 1000, labels: {} },
        ...noRules,
        sessions: 1,
        refusedMessages: 0,
      },
      offset,
      lastHeardMs: 0,
    },
    () => {},
  )

it('an event of a task lies between its start and its end when the offset changes', async () => {
  const clock = new ManualClock(0)
  const times: Record<string, number> = {}
  const jobs = new DriverJobs(
    {
      report(_, report) {
        times[report.kind] = report.at?.wallSeconds ?? NaN
      },
      notice(notice) {
        if (notice.kind !== 'event') return
        times['event'] = (notice.fields as { readonly event_time: number }).event_time
      },
    },
    () => readMoment(clock),
  )
  const offset = new ClockOffset()
  offset.add(0, 20, 20, 40)
  const agent = createAgent(offset)
  jobs.placement.addNode('first', agent.announcement.facts, {
    ...agent.announcement.facts,
    ahead: 0,
  })
  const one = jobs.add(jobOf('told'), 0)
  jobs.assign(one, agent, 0)
  await clock.advance(1000)
  jobs.reportStart(one, agent, { beganMs: 500, workerId: 'first/w1' }, jobs.readTime())
  // A shorter round trip: the agent's clock is 60 ms behind the first estimate.
  offset.add(1000, 940, 940, 1000)
  const { eventType, schema } = TaskProgress
  const fields = { fraction: 0.5, text: null }
  const event = { eventType, schema, fields, taskId: 'told', atMs: 600 }
  jobs.reportEvent(agent, event, jobs.readTime())
  const at = toEndMoment(one, agent, 610, jobs.readTime())
  jobs.end(one, { kind: 'complete', at, value: 1 }, null)
  expect(times).toEqual({ start: 0.5, event: 0.6, complete: 0.61 })
})

it('events of a task keep their order when its clocks are read at different moments', async () => {
  const clock = new ManualClock(0)
  const times: number[] = []
  const jobs = new DriverJobs(
    {
      report: (_, { at }) => void times.push(at?.wallSeconds ?? NaN),
      notice(notice) {
        if (notice.kind !== 'event') return
        times.push((notice.fields as { readonly event_time: number }).event_time)
      },
    },
    () => readMoment(clock),
  )
  const agent = createAgent()
  const one = jobs.add(jobOf('told'), 0)
  jobs.assign(one, agent, 0)
  await clock.advance(1000)
  const { monotonicMs, wallSeconds } = jobs.readTime()
  // Another process ran for a while before the wall clock was read.
  const late = (byMs: number): Moment => ({ monotonicMs, wallSeconds: wallSeconds + byMs / 1000 })
  jobs.reportStart(one, agent, { beganMs: 500, workerId: 'first/w1' }, late(20))
  const { eventType, schema } = TaskProgress
  const tell = (atMs: number, now: Moment): void => {
    const fields = { fraction: 0.5, text: null }
    jobs.reportEvent(agent, { eventType, schema, fields, taskId: 'told', atMs }, now)
  }
  tell(501, late(0))
  tell(502, late(30))
  tell(503, late(10))
  expect(times).toEqual([0.52, 0.52, 0.532, 0.532])
})

it('an event that arrives before the start of its attempt is reported after the start', () => {
  const clock = new ManualClock(0)
  const reported: string[] = []
  const jobs = new DriverJobs(
    {
      report: (_, { kind }) => void reported.push(kind),
      notice: ({ kind }) => void reported.push(kind),
    },
    () => readMoment(clock),
  )
  const agent = createAgent()
  const one = jobs.add(jobOf('told'), 0)
  jobs.assign(one, agent, 0)
  const { eventType, schema } = TaskProgress
  const fields = { fraction: 0.5, text: null }
  jobs.reportEvent(agent, { eventType, schema, fields, taskId: 'told', atMs: 1 }, jobs.readTime())
  expect(reported).toEqual([])
  jobs.reportStart(one, agent, { beganMs: 0, workerId: 'first/w1' }, jobs.readTime())
  expect(reported).toEqual(['start', 'event'])
})

it('an attempt counts as begun after three lost nodes that could run it at once', () => {
  const jobs = new DriverJobs({ report() {}, notice() {} }, () => readMoment(new ManualClock(0)))
  const lose = (...held: DriverJob[]): string[] => {
    // With one core: the jobs behind the first one have not started.
    const agent = createAgent()
    for (const one of held) jobs.assign(one, agent, 0)
    const counted = jobs.divideLost(agent).begun
    for (const one of held) agent.jobs.delete(one)
    return counted.map(({ uid }) => uid)
  }
  const [killer, other] = [jobs.add(jobOf('killer'), 0), jobs.add(jobOf('other'), 0)]
  const counted = [1, 2, 3].map(() => lose(other, killer))
  expect(counted).toEqual([[], [], ['killer']])
  jobs.end(killer, { kind: 'fail', error: new Error('lost') }, null)
  // Its further attempts count immediately; other tasks as before.
  const again = jobs.add({ ...jobOf('killer'), attempt: 2, isRetry: true }, 0)
  expect([lose(again, other), lose(other), lose(other)]).toEqual([['killer'], [], []])
  expect(lose(other)).toEqual(['other'])
})
