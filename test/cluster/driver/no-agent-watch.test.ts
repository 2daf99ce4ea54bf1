import { expect, it } from 'vitest'
import type { BackendListener, Job, TaskReport } from '../../../src/backends/backend.ts'
import type { AgentDirectory, KnownAgent } from '../../../src/cluster/driver/agent-directory.ts'
import { DriverJobs } from '../../../src/cluster/protocol/driver-jobs.ts'
import { HeldNodes } from '../../../src/cluster/protocol/placement/held-nodes.ts'
import { NoAgentWatch } from '../../../src/cluster/driver/no-agent-watch.ts'
import { BackendError, messageOf } from '../../../src/foundation/errors.ts'
import { resolveResources } from '../../../src/tasks/resources.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'
import { agentOf } from './links.ts'
import { readMoment } from '../../../src/foundation/clock.ts'

/** A directory that knows this agent alone. */
const directoryOf = (known: KnownAgent): AgentDirectory =>
  ({
    agents: [known],
    gone: [],
    unusable: [],
    allHeardMs: 300,
    find: () => known,
  }) as Partial<AgentDirectory> as AgentDirectory

const options = {
  clock: new ManualClock(0),
  url: 'nats://x',
  agentTimeoutSeconds: 60,
  explainNoAgent: null,
}

it('tasks wait for agents that may come, and fail with the reason when none will', () => {
  const told: unknown[] = []
  const report: BackendListener['report'] = ({ uid }, { kind, ...rest }) =>
    void told.push([uid, kind, 'error' in rest ? messageOf(rest.error) : ''])
  const clock = new ManualClock(0)
  const jobs = new DriverJobs({ report, notice() {} }, () => readMoment(clock))
  const directory = { agents: [], gone: [], unusable: [] } as Partial<AgentDirectory>
  let reason: BackendError | null = null
  const asked: number[] = []
  const watch = new NoAgentWatch(jobs, directory as AgentDirectory, {
    ...options,
    explainNoAgent({ cores }) {
      asked.push(cores)
      return reason
    },
  })
  for (const uid of ['first', 'second']) jobs.placement.push(jobs.add(jobOf(uid), 0))
  watch.failUnplaceable(1e9)
  expect([told, asked]).toEqual([[], [1]])
  reason = new BackendError('Invalid account')
  watch.failUnplaceable(1e9)
  expect(told).toEqual([
    ['first', 'fail', 'Invalid account'],
    ['second', 'fail', 'Invalid account'],
  ])
  expect(jobs.placement.waiting).toBe(0)
})

it('tasks fail that no agent is there for long enough for, and none will be', () => {
  const told: string[] = []
  const report: BackendListener['report'] = ({ uid }) => void told.push(uid)
  const jobs = new DriverJobs({ report, notice() {} }, () => readMoment(new ManualClock(0)))
  const { announcement } = agentOf('short')
  jobs.addAgent(announcement, { ...announcement.facts, ahead: 0 })
  const watch = new NoAgentWatch(jobs, directoryOf(agentOf('short')), {
    ...options,
    secondsLeft: () => 100,
    explainNoAgent: ({ seconds = 0 }) => (seconds > 100 ? new BackendError('maxTotal') : null),
  })
  for (const seconds of [200, 50, 300]) {
    const job = jobOf(`${seconds} s`)
    const resources = resolveResources({ seconds })
    jobs.placement.push(jobs.add({ ...job, spec: { ...job.spec, resources } }, 0))
  }
  watch.failUnplaceable(1e9)
  expect([told, jobs.placement.waiting]).toEqual([['200 s', '300 s'], 1])
})

it('a task that no agent allows fails as soon as all agents are heard', async () => {
  const told: string[] = []
  const clock = new ManualClock(0)
  const report: BackendListener['report'] = ({ uid }) => void told.push(uid)
  const jobs = new DriverJobs({ report, notice() {} }, () => readMoment(clock))
  const agent = agentOf('narrow')
  const announcement = { ...agent.announcement, only: 'functions' } as const
  jobs.addAgent(announcement, { ...announcement.facts, ahead: 0 })
  const known = { ...agent, announcement }
  const watch = new NoAgentWatch(jobs, directoryOf(known), { ...options, clock })
  jobs.placement.push(jobs.add(jobOf('program'), 0))
  watch.failUnplaceable(0)
  await clock.advance(299)
  expect(told).toEqual([])
  await clock.advance(1)
  expect(told).toEqual(['program'])
})

it('a task that is canceled while another one is told to be refused ends once', () => {
  const told: string[] = []
  let onFirst = (): void => {}
  const listener: BackendListener = {
    report({ uid }: Job, { kind }) {
      told.push(`${uid} ${kind}`)
      const cancelOthers = onFirst
      onFirst = () => {}
      cancelOthers()
    },
    notice() {},
  }
  const jobs = new DriverJobs(listener, () => readMoment(new ManualClock(0)))
  const agent = agentOf('narrow')
  const announcement = { ...agent.announcement, only: 'functions' } as const
  jobs.addAgent(announcement, { ...announcement.facts, ahead: 0 })
  const known = { ...agent, announcement }
  const watch = new NoAgentWatch(jobs, directoryOf(known), options)
  const all = ['first', 'second'].map((uid) => jobs.add(jobOf(uid), 0))
  for (const one of all) jobs.placement.push(one)
  onFirst = () => {
    // As a session's cancel does it.
    for (const one of jobs.all) {
      if (one.isEnding) continue
      jobs.placement.remove(one)
      jobs.end(one, { kind: 'cancel', reason: 'canceled' }, null)
    }
  }
  watch.failUnplaceable(10_000)
  expect(told).toEqual(['first fail', 'second fail'])
  expect(jobs.placement.waiting).toBe(0)
})

it('a task for which services have left nothing fails after its time, and is told so', () => {
  const told: string[] = []
  const report = (_: Job, end: TaskReport): void => {
    if (end.kind === 'fail') told.push(messageOf(end.error))
  }
  const held = new HeldNodes()
  const jobs = new DriverJobs({ report, notice() {} }, () => readMoment(new ManualClock(0)), {
    agents: new Map(),
    secondsLeft: () => Infinity,
    held: held.open(),
  })
  const agent = agentOf('a')
  const facts = { ...agent.announcement.facts, cores: 4, gpus: 2 }
  const known = { ...agent, announcement: { ...agent.announcement, facts } }
  jobs.addAgent(known.announcement, { ...facts, ahead: 0 })
  const watch = new NoAgentWatch(jobs, directoryOf(known), options)
  jobs.placement.push(jobs.add(jobOf('waits', { resources: { gpus: 1 } }), 0))
  held.hold('a', { service: 'chat', cores: 1, gpus: 2 })
  watch.failUnplaceable(0)
  watch.failUnplaceable(59_000)
  expect(told).toEqual([])
  watch.failUnplaceable(60_000)
  expect(told).toEqual([
    'no agent with 1 core and 1 GPU came to nats://x within 60 s; ' +
      'agent "a" has 0 GPUs besides what services hold',
  ])
})
