import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { type Backend, toEventNotice } from '../../src/backends/backend.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import type { TelemetryEvent } from '../../src/events/vocabulary.ts'
import { version } from '../../src/foundation/version.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { FakeSampler, idle } from '../backends/sampling/poller-setup.ts'
import { eventually } from '../eventually.ts'
import { eventsIn, tempFolder } from '../telemetry/open-telemetry.ts'
import { openSession, turns } from './open-session.ts'

const told = (events: readonly BaseEvent[]): string[] =>
  events
    .filter(({ event_type, backend }) => event_type === 'ResourceUpdate' && backend !== 'tutti')
    .map(({ event_time, backend, node_id }) => `${event_time} ${backend} ${node_id}`)

it('the poller follows nodes that join and leave while the session runs', async () => {
  const { clock, backend, telemetry, all } = await openSession({
    telemetry: { resourcePollSeconds: 2 },
  })
  const sampler = new FakeSampler()
  const node = { nodeId: 'n1', createSampler: () => sampler }
  backend.notice({ kind: 'node-joined', node })
  backend.notice({ kind: 'node-joined', node })
  // Its sampler is primed meanwhile.
  await clock.advance(0)
  await clock.advance(4000)
  backend.notice({ kind: 'node-left', nodeId: 'n1' })
  backend.notice({ kind: 'node-left', nodeId: 'unknown' })
  await clock.advance(4000)
  await telemetry.flush()
  expect(told(all)).toEqual(['1002 local n1', '1004 local n1'])
  expect(sampler.calls).toEqual(['prime', 'sample', 'sample', 'close'])
  backend.notice({ kind: 'node-joined', node })
  await clock.advance(0)
  await clock.advance(2000)
  await telemetry.flush()
  expect(told(all)).toHaveLength(3)
})

it('nodes that a backend has when telemetry starts are polled', async () => {
  const sampler = new FakeSampler()
  const { clock, telemetry, all } = await openSession({
    backends: [{ name: 'local', nodes: [{ nodeId: 'n0', createSampler: () => sampler }] }],
  })
  await clock.advance(5000)
  await telemetry.flush()
  expect(told(all)).toEqual(['1005 local n0'])
})

it('a subscriber after startTelemetry gets all events, however long priming takes', async () => {
  const sampler = new FakeSampler()
  sampler.primes = () => turns(10)
  const nodes = ['n0', 'n1'].map((nodeId) => ({ nodeId, createSampler: () => sampler }))
  const { telemetry, all } = await openSession({ backends: [{ name: 'local', nodes }] })
  await telemetry.flush()
  expect(all.map(({ event_type, node_id }) => [event_type, node_id])).toEqual([
    ['SessionStarted', null],
    ['tutti.NodeJoined', 'n0'],
    ['tutti.NodeJoined', 'n1'],
  ])
})

it.each(['session', 'workflow engine'])(
  'row 123: a subscriber after startTelemetry of a %s gets all events, on a busy machine too',
  async (kind) => {
    const clock = new ManualClock(1000)
    // Each node takes longer than events may wait for their turn.
    const createSampler = (): FakeSampler => {
      clock.stepWall(0.04)
      return new FakeSampler()
    }
    const nodes = ['n0', 'n1'].map((nodeId) => ({ nodeId, createSampler }))
    const backend = new FakeBackend({ name: 'local', nodes })
    const run =
      kind === 'session'
        ? new Session([backend], { clock })
        : await WorkflowEngine.create({ backend, clock })
    const telemetry = await run.startTelemetry()
    const all: TelemetryEvent[] = []
    telemetry.subscribe((event) => void all.push(event))
    await telemetry.flush()
    expect(all.map(({ event_type, node_id }) => [event_type, node_id])).toEqual([
      ['SessionStarted', null],
      ['tutti.NodeJoined', 'n0'],
      ['tutti.NodeJoined', 'n1'],
    ])
    await run[Symbol.asyncDispose]()
  },
)

it('a pushed sample is recorded at its own time, with every GPU', async () => {
  const { clock, backend, telemetry, all } = await openSession()
  backend.notice({ kind: 'node-joined', node: { nodeId: 'far' } })
  await clock.advance(60_000)
  const gpus = [{ gpu_id: 0, gpu_percent: 7 }]
  backend.notice({ kind: 'sample', nodeId: 'far', sample: { ...idle, gpus, at: 1042.5 } })
  backend.notice({ kind: 'sample', nodeId: 'far', sample: idle })
  await telemetry.flush()
  expect(told(all)).toEqual(['1042.5 local far', '1042.5 local far', '1060 local far'])
})

it('a sampler that cannot be created is named and hurts nothing else', async () => {
  const { clock, backend, telemetry, all } = await openSession()
  const createSampler = (): never => {
    throw new Error('no such device')
  }
  backend.notice({ kind: 'node-joined', node: { nodeId: 'bad', createSampler } })
  const good = new FakeSampler()
  backend.notice({ kind: 'node-joined', node: { nodeId: 'good', createSampler: () => good } })
  await clock.advance(0)
  await clock.advance(5000)
  await telemetry.flush()
  expect(told(all)).toEqual(['1005 local good'])
})

it('a backend emits an event of its own class, stamped by the session', async () => {
  const Drained = defineEvent('acme.Drained', { left: 'int' })
  const { backend, telemetry, all } = await openSession()
  backend.notice(toEventNotice(Drained, { left: 3 }, { nodeId: 'n', taskId: 'task-x' }))
  await telemetry.flush()
  expect(all.at(-1)).toMatchObject({
    event_type: 'acme.Drained',
    session_id: 's1',
    backend: 'local',
    node_id: 'n',
    task_id: 'task-x',
    left: 3,
  })
})

describe('the rows of this host', () => {
  /** The events of a session of these backends; `end` ends it after 12 s, with polls every 5 s. */
  async function eventsOf(
    backends: readonly Backend[],
    end: 'close' | 'stop' = 'close',
  ): Promise<TelemetryEvent[]> {
    const clock = new ManualClock(1000)
    const events: TelemetryEvent[] = []
    await using session = new Session(backends, { clock })
    const telemetry = await session.startTelemetry()
    telemetry.subscribe((event) => void events.push(event))
    for (const second of [5, 10, 12]) {
      await clock.advance(second * 1000 - (clock.now() - 1000) * 1000)
      // The samplers read real files.
      const polls = Math.floor(second / 5)
      await eventually(() => expect(rowsOf(events).length).toBeGreaterThanOrEqual(polls))
    }
    if (end === 'stop') await telemetry.stop()
    else await session.close()
    return events
  }

  const rowsOf = (events: readonly TelemetryEvent[]): ResourceUpdate[] =>
    events.filter((event) => event instanceof ResourceUpdate && event.gpu_id === null) as never

  it.each(['close', 'stop'] as const)(
    'two local backends have one row a poll, and one before SessionEnded: %s()',
    async (end) => {
      const names = ['one', 'two']
      const backends = await Promise.all(names.map((name) => ConcurrentBackend.create({ name })))
      const events = await eventsOf(backends, end)
      await Promise.all(backends.map((backend) => backend.close()))
      const rows = rowsOf(events)
      expect(rows.map(({ backend, node_id }) => [backend, node_id])).toEqual(
        [1, 2, 3].map(() => ['one', hostname()]),
      )
      expect(rows.map(({ event_time: time }) => time)).toEqual([1005, 1010, 1012])
      expect(rows.map((row) => row.disk_read_bytes === null)).toEqual([true, false, false])
      expect(events.at(-1)?.event_type).toBe('SessionEnded')
    },
  )

  it('a session whose backends have no nodes samples its own host', async () => {
    const rows = rowsOf(await eventsOf([new NoopBackend()]))
    expect(rows.map(({ backend, node_id }) => [backend, node_id])).toEqual(
      [1, 2, 3].map(() => ['tutti', hostname()]),
    )
  })

  it('a run that is shorter than the interval has a row, without differences', async () => {
    const events: TelemetryEvent[] = []
    const session = new Session([await ConcurrentBackend.create()])
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 86_400 })
    telemetry.subscribe((event) => void events.push(event))
    await session.close()
    const unknown = { disk_read_bytes: null, net_sent_bytes: null, net_recv_bytes: null }
    expect(rowsOf(events)).toEqual([expect.objectContaining(unknown)])
    expect(rowsOf(events)[0]?.memory_percent).toBeGreaterThan(0)
    expect(events.slice(-2).map(({ event_type: type }) => type)).toContain('SessionEnded')
  })

  it('NodeJoined is told for the local node when telemetry starts', async () => {
    const options = { name: 'here', nodeId: 'n1', cores: 3, workers: 2, memoryMb: 512.5, gpus: [7] }
    const backend = await ConcurrentBackend.create({ ...options, maxProcesses: 2 })
    await using session = new Session([backend, new NoopBackend()])
    const folder = tempFolder()
    const telemetry = await session.startTelemetry({ checkpointPath: folder })
    await telemetry.flush()
    const [started, ...joined] = eventsIn(folder)
    expect(started?.event_type).toBe('SessionStarted')
    expect(joined).toMatchObject([
      { backend: 'here', node_id: 'n1', cores: 3, gpus: 1, memory_mb: 512, labels: {}, version },
    ])
    expect(joined[0]?.attributes).toEqual({ workers: 2, max_processes: 2 })
  })
})
