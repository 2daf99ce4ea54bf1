import { describe, expect, it } from 'vitest'
import { InferenceError } from '../../../src/foundation/errors.ts'
import type { GenerationEnd } from '../../../src/inference/generation/inference-engine.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { adaptive, open } from './open-batcher.ts'
import type { Script } from './scripted-worker.ts'

const slow: Partial<Script> = { delayMs: 100 }

describe('an engine that breaks its contract', () => {
  it('row 77: fails only the requests of its batch that it left unanswered', async () => {
    const script = (id: string): Partial<Script> => ({ outcome: id === 'b' ? 'forget' : 'done' })
    const { pass, ask, reports } = open({ script })
    const [a, b, c] = [ask('a'), ask('b'), ask('c')]
    await pass(0)
    expect([a.outcome, b.outcome, c.outcome]).toEqual(['done', 'EngineContractError', 'done'])
    const next = ask('d')
    await pass(0)
    expect(next.outcome).toBe('done')
    const error = 'EngineContractError: 1 request left unanswered'
    expect(reports.map((report) => report.error)).toEqual([error, null])
  })

  it.each(['twice', 'stranger', 'late text'] as const)(
    'row 77: is not heard when it says too much (%s), and is counted',
    async (noise) => {
      const { pass, ask, batcher } = open({ script: () => ({ noise }) })
      const askers = [ask('a'), ask('b')]
      await pass(0)
      for (const { id, text, outcome, late } of askers) {
        expect([text, outcome, late]).toEqual([id, 'done', 0])
      }
      expect(batcher.breaches).toBe(2)
    },
  )

  it('row 77: matches answers by their ids, whatever their order', async () => {
    const script = (id: string): Partial<Script> => ({ delayMs: 100 - Number(id.slice(1)) })
    const { pass, askMany } = open({ script })
    const askers = askMany(50)
    await pass(100)
    expect(askers.map(({ text }) => text)).toEqual(askers.map(({ id }) => id))
    expect(askers[0]?.endedMs).toBeGreaterThan(askers[49]?.endedMs ?? NaN)
  })

  it('is told to be wrong when it cancels what nobody canceled', async () => {
    const { pass, ask, batcher, addWorker } = open()
    await batcher.removeWorker('w0')
    addWorker('w1').generate = async (requests, listener) => {
      for (const { id } of requests) listener.end(id, { kind: 'canceled' })
    }
    const one = ask('a')
    await pass(0)
    expect([one.outcome, batcher.breaches]).toEqual(['EngineContractError', 1])
  })

  it.each([undefined, null, 'done', {}, { kind: 'finished' }])(
    'row 77: is told to be wrong when it ends a request with %j, and nothing is lost',
    async (garbage) => {
      const { pass, ask, batcher, addWorker } = open()
      await batcher.removeWorker('w0')
      addWorker('w1').generate = async (requests, listener) => {
        const usage = { promptTokens: 1, completionTokens: 1 }
        const done = { kind: 'done', finishReason: 'stop', usage } as const
        for (const { id } of requests) {
          listener.end(id, id === 'a' ? (garbage as unknown as GenerationEnd) : done)
        }
      }
      const [a, b] = [ask('a'), ask('b')]
      await pass(0)
      expect([a.outcome, b.outcome]).toEqual(['EngineContractError', 'done'])
      expect([batcher.breaches, batcher.running]).toEqual([1, 0])
      await batcher.drain(new AbortController().signal)
    },
  )
})

describe('a batch that fails as a whole', () => {
  it('row 78: costs only the bad one of 1024 prompts its answer', async () => {
    const script = (id: string): Partial<Script> => ({ outcome: id === 'r7' ? 'poison' : 'done' })
    const isolated = { admits: 'step', slots: 2048 } as const
    const { pass, askMany, worker } = open({ script, capacity: isolated })
    const askers = askMany(1024)
    await pass(0)
    await pass(0)
    const bad = askers.filter(({ outcome }) => outcome !== 'done')
    expect(bad.map(({ id, outcome }) => [id, outcome])).toEqual([['r7', 'engine_error']])
    expect(askers.every(({ ends, workers }) => ends.length + workers.length === 2)).toBe(true)
    expect(worker.calls[0]).toHaveLength(1024)
    expect(worker.calls.slice(1).every(({ length }) => length === 1)).toBe(true)
  })

  it('keeps the error as the cause of the one that fails alone', async () => {
    const { pass, ask, worker } = open({ script: () => ({ outcome: 'poison' }) })
    const one = ask('a')
    await pass(0)
    const [end] = one.ends
    expect(worker.calls).toEqual([['a']])
    if (end?.kind !== 'failed' || !(end.error instanceof InferenceError)) throw new Error('wrong')
    expect(end.error.cause).toEqual(new Error('poisoned by a'))
  })

  it('is not tried again for one whose reader has a part of the answer', async () => {
    const script = (id: string): Partial<Script> =>
      id === 'a' ? { delayMs: 10, outcome: 'poison' } : { ...slow, isEarly: id === 'b' }
    const { pass, ask, worker } = open({ script })
    const [, b, c] = [ask('a'), ask('b'), ask('c')]
    await pass(10)
    expect([b.outcome, c.outcome]).toEqual(['engine_error', 'open'])
    await pass(10)
    await pass(100)
    expect([c.outcome, worker.calls]).toEqual(['done', [['a', 'b', 'c'], ['a'], ['c']]])
  })

  it('is tried again with nobody else in the batch', async () => {
    const script = (id: string): Partial<Script> =>
      id === 'a' ? { delayMs: 10, outcome: 'poison' } : { delayMs: 20 }
    const { pass, ask, worker } = open({ script })
    for (const id of ['a', 'b']) ask(id)
    await pass(5)
    ask('later')
    ask('urgent', { priority: 1 })
    for (let at = 0; at < 5; at++) await pass(20)
    expect(worker.calls).toEqual([['a', 'b'], ['urgent'], ['a'], ['b'], ['later']])
  })

  it('does not stop the fixed policy from trying again at once', async () => {
    const policy = { ...adaptive, type: 'fixed', maxBatchSize: 2 } as const
    const script = (id: string): Partial<Script> => ({ outcome: id === 'a' ? 'poison' : 'done' })
    const { pass, ask } = open({ policy, script })
    const [a, b] = [ask('a'), ask('b')]
    await pass(0)
    await pass(0)
    expect([a.outcome, b.outcome]).toEqual(['engine_error', 'done'])
  })
})

describe('a lost engine', () => {
  it('row 79: gives its requests to another, first in their class', async () => {
    const { pass, ask, batcher, worker, addWorker } = open({ script: () => slow })
    const lost = [ask('a'), ask('b')]
    await pass(10)
    const later = ask('c')
    void batcher.removeWorker('w0')
    worker.lose()
    await pass(0)
    expect([batcher.queued, batcher.running]).toEqual([3, 0])
    const other = addWorker('w1')
    await pass(100)
    expect(other.calls).toEqual([['a', 'b', 'c']])
    for (const { outcome, workers } of lost) expect([outcome, workers]).toEqual(['done', ['w0']])
    expect(later.workers).toEqual(['w1'])
  })

  it('row 79: fails those with a part of the answer, and those it happens to twice', async () => {
    const script = (id: string): Partial<Script> => ({ ...slow, isEarly: id === 'a' })
    const { pass, ask, worker } = open({ script })
    const [a, b] = [ask('a'), ask('b')]
    await pass(10)
    worker.lose()
    await pass(0)
    expect([a.outcome, b.outcome]).toEqual(['engine_lost', 'open'])
    await pass(10)
    worker.lose()
    await pass(0)
    expect([b.outcome, worker.calls]).toEqual(['engine_lost', [['a', 'b'], ['b']]])
  })

  it('row 79: begins anew, once, for one whose text nobody has read', async () => {
    const { pass, ask, batcher, addWorker } = open()
    await batcher.removeWorker('w0')
    let lives = 0
    addWorker('w1').generate = async (requests, listener) => {
      lives++
      for (const { id } of requests) void listener.delta(id, { text: `half ${lives}` })
      if (lives !== 2) throw inferenceError('engine_lost', 'it crashed')
      const usage = { promptTokens: 1, completionTokens: 1 }
      for (const { id } of requests) listener.end(id, { kind: 'done', finishReason: 'stop', usage })
    }
    const unread = ask('a')
    unread.isUnread = true
    await pass(0)
    await pass(0)
    expect([unread.outcome, unread.text, lives]).toEqual(['done', 'half 2', 2])
    const read = ask('b')
    await pass(0)
    expect([read.outcome, read.text, lives]).toEqual(['engine_lost', 'half 3', 3])
  })
})

describe('an engine that hangs', () => {
  it('row 79: is asked to let go after its time, and the request fails', async () => {
    const { pass, ask, worker, clock } = open({
      engineTimeoutMs: 1000,
      script: (id) => ({ outcome: id === 'a' ? 'hang' : 'done' }),
    })
    const [a, b] = [ask('a'), ask('b')]
    await pass(999)
    expect([a.outcome, b.outcome]).toEqual(['open', 'done'])
    await pass(1)
    expect([a.outcome, a.endedMs, worker.held.size]).toEqual(['engine_timeout', 1000, 0])
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 79: is given up when it does not let go either', async () => {
    const reasons: string[] = []
    const script = (): Partial<Script> => ({ outcome: 'hang', abortLagMs: 1e6 })
    const { pass, ask, worker } = open({ engineTimeoutMs: 1000, script })
    Object.assign(worker, { giveUp: (reason: string) => reasons.push(reason) })
    const [a, b] = [ask('a'), ask('b')]
    await pass(500)
    b.leave()
    await pass(999)
    expect([a.outcome, reasons]).toEqual(['engine_timeout', []])
    await pass(1)
    expect(reasons).toEqual(['an aborted request had not ended after 1 s'])
  })

  it('is patient with an engine that speaks, and with a reader who does not', async () => {
    const { pass, ask, batcher, addWorker } = open({ engineTimeoutMs: 1000 })
    await batcher.removeWorker('w0')
    const talks: (() => unknown)[] = []
    addWorker('w1').generate = (requests, listener) => {
      for (const { id } of requests) talks.push(() => listener.delta(id, { text: '.' }))
      return new Promise(() => {})
    }
    const [talking, reading] = [ask('a'), ask('b')]
    const { promise: digested, resolve: digest } = Promise.withResolvers<void>()
    reading.hold = digested
    await pass(900)
    for (const talk of talks) talk()
    await pass(999)
    expect([talking.outcome, reading.outcome]).toEqual(['open', 'open'])
    await pass(4000)
    expect([talking.outcome, talking.endedMs]).toEqual(['engine_timeout', 1900])
    expect(reading.outcome).toBe('open')
    digest()
    await pass(999)
    expect(reading.outcome).toBe('open')
    await pass(1001)
    expect(reading.outcome).toBe('engine_timeout')
  })
})

describe('taking a batcher down', () => {
  it('lets a worker that leaves finish what it has, and gives it no more', async () => {
    const { pass, ask, batcher, worker } = open({ script: () => slow })
    const one = ask('a')
    await pass(50)
    let hasLeft = false
    const leaving = batcher.removeWorker('w0').then(() => (hasLeft = true))
    ask('b')
    await pass(49)
    expect(hasLeft).toBe(false)
    await pass(1)
    await leaving
    expect([one.outcome, worker.calls, batcher.queued]).toEqual(['done', [['a']], 1])
    await batcher.removeWorker('w0')
  })

  it('ends all that was accepted before a drain is over, without the window', async () => {
    const policy = { ...adaptive, type: 'fixed' } as const
    const { pass, ask, batcher, clock } = open({ policy, script: () => slow })
    const one = ask('a')
    await pass(0)
    let isDrained = false
    const draining = batcher.drain(new AbortController().signal).then(() => (isDrained = true))
    expect(ask('b').outcome).toBe('closing')
    await pass(99)
    expect([one.outcome, isDrained]).toEqual(['open', false])
    await pass(1)
    await draining
    expect([one.outcome, clock.pendingTimers]).toEqual(['done', 0])
  })

  it('cancels the rest when the time of a drain is over', async () => {
    const { pass, ask, batcher, worker } = open({ script: () => slow })
    const running = ask('a')
    await pass(0)
    const waiting = ask('b')
    const deadline = new AbortController()
    const draining = batcher.drain(deadline.signal)
    await pass(10)
    deadline.abort()
    await draining
    expect([running.outcome, waiting.outcome, worker.held.size]).toEqual([
      'canceled',
      'canceled',
      0,
    ])
    await pass(100)
    expect(worker.calls).toEqual([['a']])
    await batcher.drain(new AbortController().signal)
  })

  it('refuses an id or a worker that it has already', async () => {
    const { ask, addWorker } = open()
    ask('a')
    expect(() => ask('a')).toThrow('request a is already in the batcher')
    expect(() => addWorker('w0')).toThrow('worker w0 is already in the batcher')
  })
})
