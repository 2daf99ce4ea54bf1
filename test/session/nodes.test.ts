import { expect, it } from 'vitest'
import { toEventNotice } from '../../src/backends/backend.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { defineEvent } from '../../src/events/define-event.ts'
import { FakeSampler, idle } from '../backends/sampling/poller-setup.ts'
import { openSession } from './open-session.ts'

const told = (events: readonly BaseEvent[]): string[] =>
  events
    .filter(({ event_type }) => event_type === 'ResourceUpdate')
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
