import { describe, expect, it } from 'vitest'
import type { BatchPolicy } from '../../../src/inference/generation/batch-policy.ts'
import { TestClient } from './test-client.ts'
import { adaptive, open } from './open-batcher.ts'
import type { Script } from './scripted-worker.ts'

const fixed: BatchPolicy = { ...adaptive, type: 'fixed' }
const slow: Partial<Script> = { delayMs: 100 }

const outcomes = (clients: readonly TestClient[]): string[] => [
  ...new Set(clients.map(({ outcome }) => outcome)),
]

describe('the adaptive batcher', () => {
  it('the adaptive batcher sends a lone request to an idle worker without any timer', async () => {
    const { clock, worker, send, reports, pass } = open()
    const one = send('a')
    expect(clock.pendingTimers).toBe(0)
    await pass(0)
    expect([one.outcome, one.text, one.workers]).toEqual(['done', 'a', ['w0']])
    expect(worker.calls).toEqual([['a']])
    expect(reports).toMatchObject([{ size: 1, waitMs: 0, durationMs: 0, error: null }])
  })

  it('requests that arrive in one turn of the event loop share a batch', async () => {
    const { worker, send, pass } = open()
    send('a')
    await Promise.resolve()
    send('b')
    process.nextTick(() => send('c'))
    await pass(0)
    expect(worker.calls).toEqual([['a', 'b', 'c']])
  })

  it('the adaptive batcher collects requests for a busy worker, and reports batches', async () => {
    const { batcher, worker, send, reports, pass } = open({ script: () => slow })
    send('a')
    await pass(30)
    const later = [send('b'), send('c')]
    await pass(20)
    expect([batcher.queued, batcher.running, batcher.oldestWaitMs()]).toEqual([2, 1, 20])
    await pass(150)
    expect(outcomes(later)).toEqual(['done'])
    expect(worker.calls).toEqual([['a'], ['b', 'c']])
    const [, second] = reports
    expect(second).toEqual({
      workerId: 'w0',
      size: 2,
      waitMs: 70,
      durationMs: 100,
      requestIds: ['b', 'c'],
      startedAt: 1_700_000_000.1,
      error: null,
    })
    expect([batcher.queued, batcher.running, batcher.oldestWaitMs()]).toEqual([0, 0, 0])
  })

  it('the adaptive batcher serves higher priorities first, equal ones by arrival', async () => {
    const { worker, send, pass } = open({
      script: () => slow,
      capacity: { admits: 'batch', slots: 2 },
    })
    send('first')
    await pass(0)
    for (const [id, priority] of Object.entries({ a: 0, b: 5, c: 0, d: 5, e: -1 })) {
      send(id, { priority })
    }
    await pass(400)
    expect(worker.calls).toEqual([['first'], ['b', 'd'], ['a', 'c'], ['e']])
    send('next')
    await pass(0)
    for (const [id, isRetry] of Object.entries({ f: false, g: false, h: true, i: true })) {
      send(id, { isRetry })
    }
    await pass(400)
    expect(worker.calls.slice(4)).toEqual([['next'], ['h', 'i'], ['f', 'g']])
  })

  it('the batcher serves clients in turns, however many requests one of them has', async () => {
    const { worker, send, pass } = open({
      script: () => slow,
      capacity: { admits: 'batch', slots: 2 },
    })
    for (let at = 1; at <= 6; at++) send(`many${at}`, { client: 'many' })
    await pass(0)
    send('few1', { client: 'few' })
    send('few2', { client: 'few' })
    send('urgent', { client: 'many', priority: 1 })
    await pass(600)
    const order = ['many1', 'many2', 'urgent', 'many3', 'few1', 'many4', 'few2', 'many5', 'many6']
    expect(worker.calls.flat()).toEqual(order)
    // A client that comes back does not catch up on the turns in which it had no request.
    for (const client of ['few', 'many']) {
      for (const at of [1, 2, 3]) send(`${client}-again${at}`, { client })
    }
    await pass(600)
    expect(worker.calls.flat().slice(order.length)).toEqual(
      [1, 2, 3].flatMap((at) => [`few-again${at}`, `many-again${at}`]),
    )
  })

  const eightSlots = { script: () => slow, capacity: { admits: 'step', slots: 8 } } as const

  it('a client with many requests leaves a slot to others, but not if it is alone', async () => {
    const { worker, send, pass, clock } = open(eightSlots)
    const flood = (name: string): void => {
      for (let at = 1; at <= 20; at++) send(`${name}${at}`, { client: 'many' })
    }
    flood('a')
    await pass(0)
    expect(worker.held.size).toBe(8)
    await pass(400)
    send('few0', { client: 'few' })
    await pass(200)
    flood('b')
    await pass(50)
    expect(worker.held.size).toBe(7)
    send('few1', { client: 'few' })
    send('few2', { client: 'few' })
    send('other1', { client: 'other' })
    await pass(0)
    // The second request of a client, and a third client, wait for the next slot.
    expect([worker.held.has('few1'), worker.held.size]).toEqual([true, 8])
    await pass(50)
    expect([worker.held.has('other1'), worker.held.has('few2')]).toEqual([true, true])
    await pass(500)
    expect(worker.held.size).toBe(0)
    await clock.advance(600_000)
    flood('c')
    await pass(0)
    expect(worker.held.size).toBe(8)
  })

  it('a slot that stays free is used when the backend closes', async () => {
    const { batcher, worker, send, pass } = open(eightSlots)
    send('few', { client: 'few' })
    for (let at = 1; at <= 9; at++) send(`many${at}`, { client: 'many' })
    await pass(0)
    expect(worker.held.size).toBe(7)
    void batcher.drain(new AbortController().signal)
    await pass(0)
    expect(worker.held.size).toBe(8)
  })

  it('the batcher forgets the turns of a client whose requests were canceled', async () => {
    const { worker, send, pass } = open({
      script: () => slow,
      capacity: { admits: 'batch', slots: 1 },
    })
    send('first')
    await pass(0)
    const canceled = Array.from({ length: 5 }, (_, at) => send(`c${at}`, { client: 'one' }))
    for (const client of canceled) client.cancel()
    send('other1', { client: 'other' })
    send('one', { client: 'one' })
    send('other2', { client: 'other' })
    await pass(600)
    expect(worker.calls.flat()).toEqual(['first', 'other1', 'one', 'other2'])
  })

  it('the adaptive batcher runs the batches of several workers in parallel', async () => {
    const { addWorker, send, worker, pass } = open({ script: () => slow })
    const other = addWorker('w1')
    const one = send('a')
    await pass(50)
    const two = send('b')
    await pass(50)
    expect([one.outcome, two.outcome]).toEqual(['done', 'open'])
    expect([worker.calls, other.calls]).toEqual([[['a']], [['b']]])
  })

  it('the adaptive batcher refills the slots of a step worker as they become free', async () => {
    const script = (id: string): Partial<Script> => ({ delayMs: id === 'r0' ? 10 : 100 })
    const { worker, sendMany, pass } = open({ script, capacity: { admits: 'step', slots: 2 } })
    sendMany(3)
    await pass(11)
    expect(worker.calls).toEqual([['r0', 'r1'], ['r2']])
  })
})

describe('the fixed batcher', () => {
  it('row 77: the fixed batcher processes 1, 1024 and 1025 requests, 1024 at most', async () => {
    for (const [count, sizes] of [
      [1, [1]],
      [1024, [1024]],
      [1025, [1024, 1]],
    ] as const) {
      const { clock, worker, sendMany, pass } = open({ policy: fixed })
      const clients = sendMany(count)
      await pass(0)
      expect(worker.calls.map(({ length }) => length)).toEqual(count === 1 ? [] : [1024])
      await pass(500)
      expect(worker.calls.map(({ length }) => length)).toEqual(sizes)
      expect(clients.every(({ id, text, ends }) => text === id && ends.length === 1)).toBe(true)
      expect(clock.pendingTimers).toBe(0)
    }
  })

  it('row 77: the fixed batcher makes one batch when maximum wait and size coincide', async () => {
    const { clock, worker, send, sendMany, pass } = open({ policy: { ...fixed, maxBatchSize: 3 } })
    sendMany(2)
    clock.after(500, () => send('last'))
    await pass(500)
    await pass(500)
    expect(worker.calls.flat()).toEqual(['r0', 'r1', 'last'])
    expect(worker.calls.every(({ length }) => length <= 3)).toBe(true)
  })

  it('the fixed batcher measures the wait from the oldest request still in the queue', async () => {
    const { worker, send, pass } = open({ policy: fixed })
    const oldest = send('a')
    await pass(300)
    send('b')
    oldest.cancel()
    await pass(499)
    expect(worker.calls).toEqual([])
    await pass(1)
    expect(worker.calls).toEqual([['b']])
  })

  it('the fixed batcher keeps no timer for a queue that cancellation emptied', async () => {
    const { clock, send, pass } = open({ policy: fixed })
    const one = send('a')
    await pass(1)
    expect(clock.pendingTimers).toBe(1)
    one.cancel()
    expect([one.outcome, clock.pendingTimers]).toEqual(['canceled', 0])
  })
})

describe('the limits of a batcher', () => {
  it('a full queue rejects a request at once with queue_full', async () => {
    const { send, sendMany, pass } = open({ queueLimit: 2 })
    sendMany(2)
    const third = send('c')
    expect(third.outcome).toBe('queue_full')
    await pass(0)
    expect(third.workers).toEqual([])
  })

  it('ten thousand deadlines share one timer', async () => {
    const { clock, send, pass } = open({ script: () => slow })
    send('busy')
    await pass(0)
    const clients = Array.from({ length: 9_999 }, (_, at) =>
      send(`r${at}`, { timeoutMs: 1 + ((at * 7919) % 50) }),
    )
    expect(clock.pendingTimers).toBe(2)
    await pass(50)
    expect(outcomes(clients)).toEqual(['request_timeout'])
    const isOnTime = (one: TestClient): boolean => one.endedMs - one.sentMs === one.timeoutMs
    expect(clients.every(isOnTime)).toBe(true)
  })
})

describe('canceling a request in the batcher', () => {
  it('a canceled request leaves the queue at once and never reaches an engine', async () => {
    const { worker, send, pass } = open({ script: () => slow })
    send('a')
    await pass(0)
    const [leaving, late] = [send('b'), send('c', { timeoutMs: 20 })]
    leaving.cancel()
    expect(leaving.outcome).toBe('canceled')
    await pass(20)
    expect([late.outcome, late.endedMs]).toEqual(['request_timeout', 20])
    await pass(300)
    expect(worker.calls).toEqual([['a']])
  })

  it('a request that is aborted or expired on arrival never enters the queue', async () => {
    const { clock, batcher, worker, send, pass } = open()
    const gone = new TestClient(clock, 'a')
    gone.cancel()
    gone.send(batcher)
    const late = send('b', { timeoutMs: 0 })
    await pass(0)
    expect([gone.outcome, late.outcome, worker.calls]).toEqual(['canceled', 'request_timeout', []])
  })

  it('a request canceled in its engine ends alone, the rest of its batch goes on', async () => {
    const { batcher, worker, send, pass } = open({ script: () => slow })
    const [leaving, late, staying] = [send('a'), send('b', { timeoutMs: 40 }), send('c')]
    await pass(10)
    leaving.cancel()
    expect(leaving.outcome).toBe('canceled')
    expect([...worker.held]).toEqual(['b', 'c'])
    await pass(30)
    expect([late.outcome, ...worker.held]).toEqual(['request_timeout', 'c'])
    await pass(60)
    expect([staying.outcome, batcher.breaches]).toEqual(['done', 0])
    expect([leaving.ends.length, late.ends.length]).toEqual([1, 1])
  })

  it('a request that its listener cancels at the start never reaches the engine', async () => {
    const { batcher, worker, clock, pass } = open()
    const [leaving, other] = [new TestClient(clock, 'a'), new TestClient(clock, 'b')]
    const queued = other.toOptions()
    leaving.send(batcher)
    batcher.enqueue({
      ...queued,
      listener: { ...queued.listener, started: () => leaving.cancel() },
    })
    await pass(0)
    expect([leaving.outcome, other.outcome, worker.calls]).toEqual(['canceled', 'done', [['b']]])
  })

  it('a canceled request gets no more calls while its engine still works on it', async () => {
    const script = (): Partial<Script> => ({ delayMs: 100, abortLagMs: 30 })
    const { batcher, worker, clock, pass } = open({ script })
    const talk: (() => unknown)[] = []
    const generate = worker.generate.bind(worker)
    worker.generate = (requests, listener) => {
      talk.push(() => listener.delta('a', { text: 'still here' }))
      return generate(requests, listener)
    }
    const one = new TestClient(clock, 'a').send(batcher)
    await pass(0)
    one.cancel()
    for (const say of talk) say()
    expect([one.outcome, one.text, one.late, batcher.breaches]).toEqual(['canceled', '', 0, 0])
  })

  it('a worker counts as busy until it has ended its canceled request', async () => {
    const script = (): Partial<Script> => ({ delayMs: 100, abortLagMs: 30 })
    const { batcher, worker, send, pass } = open({ script })
    const first = send('a')
    await pass(0)
    first.cancel()
    send('b')
    await pass(29)
    expect([batcher.running, batcher.queued, worker.calls.length]).toEqual([1, 1, 1])
    await pass(1)
    expect(worker.calls).toEqual([['a'], ['b']])
  })
})
