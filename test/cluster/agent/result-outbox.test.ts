import { describe, expect, it } from 'vitest'
import { ResultOutbox } from '../../../src/cluster/agent/result-outbox.ts'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import type { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { deriveKeys, open } from '../../../src/cluster/wire/envelope.ts'
import type { ResultsMessage } from '../../../src/cluster/wire/messages.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { runOf } from '../test-token.ts'

const key = deriveKeys('a token', runOf('session')).toDriver

/** An outbox, and how many ends each of its messages had. */
function outboxOf(clock: ManualClock) {
  const sizes: number[] = []
  const stream = { isThere: true, isOwn: true, isSilent: false, isHeard: true }
  const append = (subject: string, data: Uint8Array): Promise<void> => {
    if (!stream.isThere) return Promise.reject(new Error('no responders'))
    if (stream.isSilent) return new Promise(() => {})
    sizes.push((open(key, subject, data).payload as ResultsMessage).completions.indexes.length)
    return Promise.resolve()
  }
  const outbox = new ResultOutbox({
    agent: 'one',
    epoch: 1,
    key: () => key,
    subject: 'ends',
    broker: { maxPayload: 1_000_000, isConnected: true, store: { append } } as unknown as Broker,
    store: {
      objects: {} as StoredObjects,
      openStream: () => Promise.resolve(stream.isOwn),
      makeRoom: () => Promise.resolve(false),
    },
    clock,
    ahead: () => 1,
    isDriverHeard: () => stream.isHeard,
    onFlush: () => {},
    unconfirmedMark: () => undefined,
    restorePaths: (text) => text,
    onProblem: () => {},
    onFailed: (error) => expect.fail(String(error)),
  })
  let count = 0
  const end = (workMs: number, rate: number | null = null): void => {
    const attempt = { index: 0, uid: `task-${++count}`, attempt: 1, beganMs: 0, workerId: 'w' }
    const held = { workMs, rate }
    outbox.add(attempt, { kind: 'complete', value: undefined }, clock.monotonicMs(), held)
  }
  return { outbox, sizes, end, stream }
}

describe('ends on their way to the driver', () => {
  it('results share messages while other jobs wait at the agent', async () => {
    const clock = new ManualClock()
    const { sizes, end } = outboxOf(clock)
    for (let count = 0; count < 40; count++) {
      end(100)
      await clock.advance(2)
    }
    // The first is sent immediately.
    expect(sizes).toEqual([1, 9, 10, 10, 10])
  })

  it('results of the same moment share a message at a node that ends thousands', async () => {
    const clock = new ManualClock()
    const { sizes, end } = outboxOf(clock)
    for (let count = 0; count < 10; count++) end(1, 10_000)
    expect(sizes).toEqual([])
    await clock.advance(0)
    expect(sizes).toEqual([10])
  })

  it('results are not held back for others at a node that ends few', async () => {
    const clock = new ManualClock()
    const { sizes, end } = outboxOf(clock)
    for (let count = 0; count < 3; count++) {
      end(1, 1000)
      await clock.advance(1)
    }
    expect(sizes).toEqual([1, 1, 1])
  })

  it('results are sent before the agent runs out of work', async () => {
    const clock = new ManualClock()
    const { sizes, end } = outboxOf(clock)
    end(8)
    end(8)
    await clock.advance(4)
    expect(sizes).toEqual([1, 1])
  })

  it('results are sent immediately with the last job', () => {
    const { sizes, end } = outboxOf(new ManualClock())
    end(100)
    end(100)
    end(0)
    expect(sizes).toEqual([1, 2])
  })

  it('results of one among many agents share larger messages', async () => {
    const clock = new ManualClock()
    const { outbox, sizes, end } = outboxOf(clock)
    outbox.handleHeartbeat({ agents: 64, lostStreams: 0, needsRoom: false })
    for (let count = 0; count < 160; count++) {
      end(1, 1000)
      await clock.advance(1)
    }
    expect(sizes).toEqual([1, 76, 77])
  })

  it('results are not sent into the stream of another run while the driver is silent', async () => {
    const clock = new ManualClock()
    const { sizes, end, stream } = outboxOf(clock)
    Object.assign(stream, { isOwn: false, isHeard: false })
    end(1, 1000)
    await clock.advance(5000)
    expect(sizes).toEqual([])
    stream.isOwn = true
    await clock.advance(5000)
    expect(sizes).toEqual([1])
  })

  it('results are sent again when the driver reports that the stream was lost', async () => {
    const clock = new ManualClock()
    const { outbox, sizes, end, stream } = outboxOf(clock)
    end(1, 1000)
    await clock.advance(1)
    // Subscribers get the message, and nothing reports that no stream has it.
    stream.isSilent = true
    end(1, 1000)
    await clock.advance(1)
    stream.isSilent = false
    for (const lostStreams of [0, 1, 1]) {
      outbox.handleHeartbeat({ agents: 1, lostStreams, needsRoom: false })
      await clock.advance(1)
    }
    expect(sizes).toEqual([1, 1])
  })

  it('results wait while the stream is that of another run with another signature', async () => {
    const clock = new ManualClock()
    const { sizes, end, stream } = outboxOf(clock)
    stream.isThere = false
    end(1, 1000)
    await clock.advance(1)
    Object.assign(stream, { isThere: true, isOwn: false })
    await clock.advance(5000)
    expect(sizes).toEqual([])
    stream.isOwn = true
    await clock.advance(5000)
    expect(sizes).toEqual([1])
  })
})
