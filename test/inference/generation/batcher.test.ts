import { describe, expect, it } from 'vitest'
import type { BatchPolicy } from '../../../src/inference/generation/batch-policy.ts'
import { TestClient } from './test-client.ts'
import { adaptive, open } from './open-batcher.ts'
import type { Script } from './scripted-worker.ts'

const fixed: BatchPolicy = { ...adaptive, type: 'fixed' }
const slow: Partial<Script> = { delayMs: 100 }

const outcomes = (askers: readonly TestClient[]): string[] => [
  ...new Set(askers.map(({ outcome }) => outcome)),
]

describe('the adaptive batcher', () => {
  it('sends a lone request to an idle worker without any timer', async () => {
    const { clock, worker, ask, reports, pass } = open()
    const one = ask('a')
    expect(clock.pendingTimers).toBe(0)
    await pass(0)
    expect([one.outcome, one.text, one.workers]).toEqual(['done', 'a', ['w0']])
    expect(worker.calls).toEqual([['a']])
    expect(reports).toMatchObject([{ size: 1, waitMs: 0, durationMs: 0, error: null }])
  })

  it('makes one batch of what comes in one turn, from however many callbacks', async () => {
    const { worker, ask, pass } = open()
    ask('a')
    await Promise.resolve()
    ask('b')
    process.nextTick(() => ask('c'))
    await pass(0)
    expect(worker.calls).toEqual([['a', 'b', 'c']])
  })

  it('collects while its worker is busy, and reports each batch', async () => {
    const { batcher, worker, ask, reports, pass } = open({ script: () => slow })
    ask('a')
    await pass(30)
    const later = [ask('b'), ask('c')]
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

  it('serves higher priorities first, and equals in their order', async () => {
    const { worker, ask, pass } = open({
      script: () => slow,
      capacity: { admits: 'batch', slots: 2 },
    })
    ask('first')
    await pass(0)
    for (const [id, priority] of Object.entries({ a: 0, b: 5, c: 0, d: 5, e: -1 })) {
      ask(id, { priority })
    }
    await pass(400)
    expect(worker.calls).toEqual([['first'], ['b', 'd'], ['a', 'c'], ['e']])
  })

  it('lets the batches of several workers run side by side', async () => {
    const { addWorker, ask, worker, pass } = open({ script: () => slow })
    const other = addWorker('w1')
    const one = ask('a')
    await pass(50)
    const two = ask('b')
    await pass(50)
    expect([one.outcome, two.outcome]).toEqual(['done', 'open'])
    expect([worker.calls, other.calls]).toEqual([[['a']], [['b']]])
  })

  it('refills the slots of a step worker as they become free', async () => {
    const script = (id: string): Partial<Script> => ({ delayMs: id === 'r0' ? 10 : 100 })
    const { worker, askMany, pass } = open({ script, capacity: { admits: 'step', slots: 2 } })
    askMany(3)
    await pass(11)
    expect(worker.calls).toEqual([['r0', 'r1'], ['r2']])
  })
})

describe('the fixed batcher', () => {
  it('row 77: processes 1, 1024 and 1025 requests, never more than 1024 at a time', async () => {
    for (const [count, sizes] of [
      [1, [1]],
      [1024, [1024]],
      [1025, [1024, 1]],
    ] as const) {
      const { clock, worker, askMany, pass } = open({ policy: fixed })
      const askers = askMany(count)
      await pass(0)
      expect(worker.calls.map(({ length }) => length)).toEqual(count === 1 ? [] : [1024])
      await pass(500)
      expect(worker.calls.map(({ length }) => length)).toEqual(sizes)
      expect(askers.every(({ id, text, ends }) => text === id && ends.length === 1)).toBe(true)
      expect(clock.pendingTimers).toBe(0)
    }
  })

  it('row 77: makes one batch when its time and its size come together', async () => {
    const { clock, worker, ask, askMany, pass } = open({ policy: { ...fixed, maxBatchSize: 3 } })
    askMany(2)
    clock.after(500, () => ask('last'))
    await pass(500)
    await pass(500)
    expect(worker.calls.flat()).toEqual(['r0', 'r1', 'last'])
    expect(worker.calls.every(({ length }) => length <= 3)).toBe(true)
  })

  it('counts the wait from the oldest that still waits', async () => {
    const { worker, ask, pass } = open({ policy: fixed })
    const oldest = ask('a')
    await pass(300)
    ask('b')
    oldest.leave()
    await pass(499)
    expect(worker.calls).toEqual([])
    await pass(1)
    expect(worker.calls).toEqual([['b']])
  })

  it('has no timer for a line that everybody has left', async () => {
    const { clock, ask, pass } = open({ policy: fixed })
    const one = ask('a')
    await pass(1)
    expect(clock.pendingTimers).toBe(1)
    one.leave()
    expect([one.outcome, clock.pendingTimers]).toEqual(['canceled', 0])
  })
})

describe('a batcher with a limit', () => {
  it('refuses at once what does not fit into its queue', async () => {
    const { ask, askMany, pass } = open({ queueLimit: 2 })
    askMany(2)
    const third = ask('c')
    expect(third.outcome).toBe('queue_full')
    await pass(0)
    expect(third.workers).toEqual([])
  })

  it('keeps one timer for ten thousand deadlines', async () => {
    const { clock, ask, pass } = open({ script: () => slow })
    ask('busy')
    await pass(0)
    const askers = Array.from({ length: 9_999 }, (_, at) =>
      ask(`r${at}`, { timeoutMs: 1 + ((at * 7919) % 50) }),
    )
    expect(clock.pendingTimers).toBe(2)
    await pass(50)
    expect(outcomes(askers)).toEqual(['request_timeout'])
    const isOnTime = (one: TestClient): boolean => one.endedMs - one.askedMs === one.timeoutMs
    expect(askers.every(isOnTime)).toBe(true)
  })
})

describe('leaving a batcher', () => {
  it('takes a request out of the queue at once, and never to an engine', async () => {
    const { worker, ask, pass } = open({ script: () => slow })
    ask('a')
    await pass(0)
    const [leaving, late] = [ask('b'), ask('c', { timeoutMs: 20 })]
    leaving.leave()
    expect(leaving.outcome).toBe('canceled')
    await pass(20)
    expect([late.outcome, late.endedMs]).toEqual(['request_timeout', 20])
    await pass(300)
    expect(worker.calls).toEqual([['a']])
  })

  it('refuses what was aborted or out of time before it came', async () => {
    const { clock, batcher, worker, ask, pass } = open()
    const gone = new TestClient(clock, 'a')
    gone.leave()
    gone.ask(batcher)
    const late = ask('b', { timeoutMs: 0 })
    await pass(0)
    expect([gone.outcome, late.outcome, worker.calls]).toEqual(['canceled', 'request_timeout', []])
  })

  it('ends a request in its engine, and leaves the others of the batch alone', async () => {
    const { batcher, worker, ask, pass } = open({ script: () => slow })
    const [leaving, late, staying] = [ask('a'), ask('b', { timeoutMs: 40 }), ask('c')]
    await pass(10)
    leaving.leave()
    expect(leaving.outcome).toBe('canceled')
    expect([...worker.held]).toEqual(['b', 'c'])
    await pass(30)
    expect([late.outcome, ...worker.held]).toEqual(['request_timeout', 'c'])
    await pass(60)
    expect([staying.outcome, batcher.breaches]).toEqual(['done', 0])
    expect([leaving.ends.length, late.ends.length]).toEqual([1, 1])
  })

  it('keeps a request from its engine that leaves when it hears of its start', async () => {
    const { batcher, worker, clock, pass } = open()
    const [leaving, other] = [new TestClient(clock, 'a'), new TestClient(clock, 'b')]
    const queued = other.toQueued()
    leaving.ask(batcher)
    batcher.enqueue({ ...queued, listener: { ...queued.listener, started: () => leaving.leave() } })
    await pass(0)
    expect([leaving.outcome, other.outcome, worker.calls]).toEqual(['canceled', 'done', [['b']]])
  })

  it('hears no more of a request that an engine has not let go yet', async () => {
    const script = (): Partial<Script> => ({ delayMs: 100, abortLagMs: 30 })
    const { batcher, worker, clock, pass } = open({ script })
    const talk: (() => unknown)[] = []
    const generate = worker.generate.bind(worker)
    worker.generate = (requests, listener) => {
      talk.push(() => listener.delta('a', { text: 'still here' }))
      return generate(requests, listener)
    }
    const one = new TestClient(clock, 'a').ask(batcher)
    await pass(0)
    one.leave()
    for (const say of talk) say()
    expect([one.outcome, one.text, one.late, batcher.breaches]).toEqual(['canceled', '', 0, 0])
  })

  it('keeps a worker busy until it has let go', async () => {
    const script = (): Partial<Script> => ({ delayMs: 100, abortLagMs: 30 })
    const { batcher, worker, ask, pass } = open({ script })
    const first = ask('a')
    await pass(0)
    first.leave()
    ask('b')
    await pass(29)
    expect([batcher.running, batcher.queued, worker.calls.length]).toEqual([1, 1, 1])
    await pass(1)
    expect(worker.calls).toEqual([['a'], ['b']])
  })
})
