import { describe, expect, it, vi } from 'vitest'
import { nextDueMs } from '../../../src/backends/sampling/poller.ts'
import { type ResourceSample, unknownReadings } from '../../../src/backends/sampling/sampler.ts'
import type { SampledNode } from '../../../src/backends/backend.ts'
import type { RecordingSink } from '../../../src/testing/recorders.ts'
import { FakeSampler, idle, setUp } from './poller-setup.ts'

const never = (): Promise<never> => new Promise(() => {})

describe('ResourcePoller', () => {
  it('ResourcePoller primes at its start and polls first after one interval', async () => {
    const { clock, sink, poller, add } = setUp()
    const sampler = add('host')
    expect(sampler.calls).toEqual([])
    await poller.start()
    await clock.advance(4999)
    expect(sampler.calls).toEqual(['prime'])
    await clock.advance(1)
    expect(sampler.calls).toEqual(['prime', 'sample'])
    await clock.advance(10_000)
    expect(sink.events.map((event) => event.event_time - 1_700_000_000)).toEqual([5, 10, 15])
    await poller.stop()
  })

  it('ResourcePoller never asks for a timer in the past, however short its interval', async () => {
    const { clock, poller } = setUp(1e-9)
    const after = vi.spyOn(clock, 'after').mockReturnValue(() => {})
    let nowMs = 0
    vi.spyOn(clock, 'monotonicMs').mockImplementation(() => ++nowMs)
    await poller.start()
    after.mock.calls[0]?.[1]()
    expect(after.mock.calls.map(([ms]) => ms)).toEqual([0, 0])
    await poller.stop()
  })

  it('ResourcePoller keeps the process alive only while it waits for samplers', async () => {
    const { clock, poller, add } = setUp(30)
    add('host')
    await poller.start()
    await clock.advance(60_000)
    await poller.stop()
    expect(new Set(clock.foregroundTimersMs)).toEqual(new Set([2000]))
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 60: a poll slower than the interval skips ticks and never overlaps', async () => {
    const { clock, sink, warnings, poller, add } = setUp()
    const slow = add('slow')
    const quick = add('quick')
    const polls = [0, 1].map(() => Promise.withResolvers<ResourceSample>())
    slow.answer = () => polls[slow.calls.length - 2]?.promise ?? Promise.resolve(idle)
    await poller.start()
    await clock.advance(0)
    await clock.advance(12_000)
    expect(slow.calls).toEqual(['prime', 'sample'])
    expect(quick.calls).toEqual(['prime', 'sample', 'sample'])
    polls[0]?.resolve(idle)
    await clock.advance(0)
    expect(sink.events.map((event) => event.node_id)).toEqual(['quick', 'quick', 'slow'])
    expect(sink.events.at(-1)?.event_time).toBe(1_700_000_012)
    await clock.advance(3000)
    expect(slow.calls).toEqual(['prime', 'sample', 'sample'])
    expect(warnings).toEqual([
      expect.stringMatching(
        /node "slow" \(backend "local"\) does not answer: its polls are skipped/,
      ),
    ])
    polls[1]?.resolve(idle)
    await poller.stop()
  })

  it('row 60: a laptop that slept for an hour polls once, and then as before', async () => {
    const { clock, poller, add } = setUp()
    const sampler = add('host')
    await poller.start()
    await clock.advance(5000)
    clock.sleptMs = 3_600_000
    await clock.advance(5000)
    expect(sampler.calls).toEqual(['prime', 'sample', 'sample'])
    await clock.advance(4999)
    expect(sampler.calls).toHaveLength(3)
    await clock.advance(1)
    expect(sampler.calls).toHaveLength(4)
    await poller.stop()
  })

  it('a sampler that fails gives nulls and one warning, and hurts no other', async () => {
    const { clock, sink, warnings, poller, add } = setUp()
    const failing = add('failing')
    failing.primes = () => Promise.reject(new Error('no baseline'))
    failing.answer = () => {
      throw new Error('no sample')
    }
    add('fine')
    await poller.start()
    await clock.advance(0)
    await clock.advance(10_000)
    expect(sink.events).toHaveLength(4)
    const ofFailing = sink.events.filter((event) => event.node_id === 'failing')
    expect(ofFailing).toHaveLength(2)
    for (const event of ofFailing) expect(event).toMatchObject(unknownReadings)
    expect(warnings).toEqual([
      'The resource sampler of node "failing" (backend "local") failed: no baseline',
    ])
    await poller.stop()
  })

  it('ResourcePoller polls a node added later from the next cycle on', async () => {
    const { clock, sink, poller, add } = setUp()
    await poller.start()
    await clock.advance(4000)
    const late = add('late')
    await clock.advance(999)
    expect(late.calls).toEqual(['prime'])
    await clock.advance(1)
    expect(late.calls).toEqual(['prime', 'sample'])
    expect(sink.events).toHaveLength(1)
    await poller.stop()
  })

  it('a poll waits until the node is primed', async () => {
    const { clock, sink, poller, add } = setUp()
    const sampler = add('host')
    const primed = Promise.withResolvers<void>()
    sampler.primes = () => primed.promise
    const started = poller.start()
    await clock.advance(2000)
    await started
    await clock.advance(5000)
    expect(sampler.calls).toEqual(['prime'])
    primed.resolve()
    await clock.advance(0)
    expect(sampler.calls).toEqual(['prime', 'sample'])
    await clock.advance(3000)
    expect(sampler.calls).toEqual(['prime', 'sample', 'sample'])
    expect(sink.events).toHaveLength(2)
    await poller.stop()
  })

  it('ResourcePoller closes a removed node and drops its poll in progress', async () => {
    const { clock, sink, poller, add } = setUp()
    const leaving = add('leaving')
    add('staying')
    const poll = Promise.withResolvers<ResourceSample>()
    leaving.answer = () => poll.promise
    await poller.start()
    await clock.advance(5000)
    poller.handleNotice('local', { kind: 'node-left', nodeId: 'leaving' })
    expect(leaving.calls).toEqual(['prime', 'sample'])
    poll.resolve(idle)
    await clock.advance(0)
    expect(leaving.calls).toEqual(['prime', 'sample', 'close'])
    poller.handleNotice('local', { kind: 'node-left', nodeId: 'leaving' })
    await clock.advance(5000)
    expect(sink.events.map((event) => event.node_id)).toEqual(['staying', 'staying'])
    expect(leaving.calls).toHaveLength(3)
    await poller.stop()
  })

  it('ResourcePoller polls once more and closes its samplers on stop, then is silent', async () => {
    const { clock, sink, poller, add } = setUp()
    const sampler = add('host')
    await poller.start()
    await clock.advance(5000)
    await poller.stop()
    await poller.stop()
    await clock.advance(60_000)
    expect(sampler.calls).toEqual(['prime', 'sample', 'sample', 'close'])
    expect(sink.events).toHaveLength(2)
    expect(clock.pendingTimers).toBe(0)
    const late = add('late')
    await clock.advance(60_000)
    expect(late.calls).toEqual([])
  })

  it('ResourcePoller stops within 2 s of a sampler that hangs, and closes it', async () => {
    const { clock, sink, poller, add } = setUp()
    const hung = add('hung')
    hung.answer = never
    const fine = add('fine')
    await poller.start()
    await clock.advance(5000)
    let isStopped = false
    const stopped = poller.stop().then(() => (isStopped = true))
    await clock.advance(0)
    await clock.advance(1999)
    expect(isStopped).toBe(false)
    expect(fine.calls.at(-1)).toBe('close')
    await clock.advance(1)
    await stopped
    expect(hung.calls).toEqual(['prime', 'sample', 'close'])
    expect(sink.events.map((event) => event.node_id)).toEqual(['fine', 'fine'])
  })

  it('ResourcePoller does nothing when it is stopped before it was started', async () => {
    const { clock, poller, add } = setUp()
    const sampler = add('host')
    await poller.stop()
    await poller.start()
    await clock.advance(10_000)
    expect(sampler.calls).toEqual([])
  })

  const nodeWith = (sampler: FakeSampler, samplingPriority = 0): SampledNode => ({
    nodeId: 'host',
    samplingPriority,
    createSampler: () => sampler,
  })
  const ownersOf = (sink: RecordingSink): string[] => sink.events.map(({ backend }) => backend)

  it('a node of several backends is sampled once: priority first, then order', async () => {
    const { clock, sink, nodeEvents, poller } = setUp()
    const [first, second, wide] = [new FakeSampler(), new FakeSampler(), new FakeSampler()]
    poller.addBackend('first', [])
    poller.addBackend('second', [nodeWith(second)])
    await poller.start()
    await clock.advance(5000)
    poller.handleNotice('first', { kind: 'node-joined', node: nodeWith(first) })
    await clock.advance(0)
    await clock.advance(5000)
    poller.addBackend('wide', [nodeWith(wide, 1)])
    await clock.advance(0)
    await clock.advance(5000)
    // Readings that a node sends by itself count only if its backend owns the node.
    poller.handleNotice('first', { kind: 'sample', nodeId: 'host', sample: idle })
    poller.handleNotice('wide', { kind: 'node-left', nodeId: 'host' })
    await clock.advance(0)
    await clock.advance(5000)
    expect(ownersOf(sink)).toEqual(['second', 'first', 'wide', 'first'])
    await poller.stop()
    expect(ownersOf(sink)).toEqual(['second', 'first', 'wide', 'first', 'first'])
    expect(second.calls).toEqual(['prime', 'sample', 'close'])
    expect(nodeEvents.map(({ event_type, backend }) => `${event_type} ${backend}`)).toEqual([
      'tutti.NodeJoined second',
      'tutti.NodeJoined first',
      'tutti.NodeJoined wide',
      'tutti.NodeDrained wide',
    ])
  })

  it('ResourcePoller samples its host as "tutti" only while no backend has a node', async () => {
    const hosts: FakeSampler[] = []
    const createSampler = (): FakeSampler => {
      const sampler = new FakeSampler()
      hosts.push(sampler)
      return sampler
    }
    const { clock, sink, nodeEvents, poller, add } = setUp(5, { nodeId: 'own', createSampler })
    poller.addBackend('local', [])
    await poller.start()
    await clock.advance(5000)
    add('node')
    await clock.advance(0)
    await clock.advance(5000)
    const lost = { reason: 'no heartbeat', tasks: ['task-1'] }
    poller.handleNotice('local', { kind: 'node-left', nodeId: 'node', lost })
    await clock.advance(0)
    await poller.stop()
    expect(sink.events.map(({ backend, node_id }) => `${backend} ${node_id}`)).toEqual([
      'tutti own',
      'local node',
      'tutti own',
    ])
    expect(hosts.map(({ calls }) => calls)).toEqual([
      ['prime', 'sample', 'close'],
      ['prime', 'sample', 'close'],
    ])
    expect(nodeEvents.at(-1)).toMatchObject({ event_type: 'tutti.NodeLost', ...lost })
  })

  it.each([0, -1, 86_401, NaN, Infinity])(
    'ResourcePoller refuses an interval of %s s',
    (seconds) => {
      expect(() => setUp(seconds)).toThrow(
        /`intervalSeconds` to be a number above 0 and at most 86400/,
      )
    },
  )
})

describe('nextDueMs', () => {
  it('nextDueMs keeps the beat when a timer fires a little late or early', () => {
    expect(nextDueMs(5000, 5003, 5000)).toBe(10_000)
    expect(nextDueMs(5000, 4999.6, 5000)).toBe(10_000)
  })

  it('nextDueMs begins a new beat after a pause, so polls are never close together', () => {
    expect(nextDueMs(5000, 9999, 5000)).toBe(14_999)
    expect(nextDueMs(5000, 3_605_000, 5000)).toBe(3_610_000)
  })
})
