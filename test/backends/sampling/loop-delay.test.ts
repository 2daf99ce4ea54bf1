import { hostname } from 'node:os'
import { expect, it } from 'vitest'
import { LoopDelay } from '../../../src/backends/sampling/loop-delay.ts'
import { ResourcePoller } from '../../../src/backends/sampling/poller.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RecordingSink } from '../../../src/testing/recorders.ts'
import { eventually } from '../../eventually.ts'
import { FakeSampler } from './poller-setup.ts'

it('the polls of the own host tell the delay of the event loop', async () => {
  const clock = new ManualClock()
  const sink = new RecordingSink()
  const calls: string[] = []
  class FakeDelay extends LoopDelay {
    override start = (): void => void calls.push('start')
    override readMaxMs = (): number => 12.5
    override stop = (): void => void calls.push('stop')
  }
  const loopDelay = new FakeDelay()
  const poller = new ResourcePoller({
    clock,
    log: { warn: () => {} },
    sessionId: 's1',
    sink,
    loopDelay,
  })
  const nodes = [hostname(), 'other'].map((nodeId) => {
    return { nodeId, createSampler: () => new FakeSampler() }
  })
  poller.addBackend('local', nodes)
  expect(calls).toEqual([])
  await poller.start()
  await clock.advance(0)
  await clock.advance(5000)
  expect(calls).toEqual(['start'])
  const polls = sink.events.filter(({ event_type: type }) => type === 'ResourceUpdate')
  expect(polls.map(({ node_id: node, attributes }) => [node, attributes])).toEqual([
    [hostname(), { loop_delay_ms: 12.5 }],
    ['other', {}],
  ])
  await poller.stop()
  expect(calls).toEqual(['start', 'stop'])
})

it('LoopDelay reads the maximum since the last call, and nothing while it is stopped', async () => {
  const delay = new LoopDelay()
  expect(delay.readMaxMs()).toBeNull()
  delay.start()
  const first = await eventually(() => {
    const ms = delay.readMaxMs()
    expect(ms).not.toBeNull()
    return ms
  })
  expect(first).toBeGreaterThanOrEqual(0)
  expect(delay.readMaxMs()).toBeNull()
  delay.stop()
  expect(delay.readMaxMs()).toBeNull()
})
