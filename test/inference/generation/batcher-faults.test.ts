import { describe, expect, it } from 'vitest'
import { InferenceError } from '../../../src/foundation/errors.ts'
import type { GenerationEnd } from '../../../src/inference/generation/inference-engine.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { adaptive, open } from './open-batcher.ts'
import type { Script } from './scripted-worker.ts'

const slow: Partial<Script> = { delayMs: 100 }

describe('a batcher with an engine that breaks its contract', () => {
  it('row 77: a batcher fails only the requests that the engine left unanswered', async () => {
    const script = (id: string): Partial<Script> => ({ outcome: id === 'b' ? 'forget' : 'done' })
    const { pass, send, reports } = open({ script })
    const [a, b, c] = [send('a'), send('b'), send('c')]
    await pass(0)
    expect([a.outcome, b.outcome, c.outcome]).toEqual(['done', 'EngineContractError', 'done'])
    const next = send('d')
    await pass(0)
    expect(next.outcome).toBe('done')
    const error = 'EngineContractError: 1 request left unanswered'
    expect(reports.map((report) => report.error)).toEqual([error, null])
  })

  it.each(['second end', 'unknown id', 'late delta'] as const)(
    'row 77: a batcher ignores and counts calls that the contract forbids (%s)',
    async (noise) => {
      const { pass, send, batcher } = open({ script: () => ({ noise }) })
      const clients = [send('a'), send('b')]
      await pass(0)
      for (const { id, text, outcome, late } of clients) {
        expect([text, outcome, late]).toEqual([id, 'done', 0])
      }
      expect(batcher.breaches).toBe(2)
    },
  )

  it('row 77: a batcher matches results to requests by id, in any order', async () => {
    const script = (id: string): Partial<Script> => ({ delayMs: 100 - Number(id.slice(1)) })
    const { pass, sendMany } = open({ script })
    const clients = sendMany(50)
    await pass(100)
    expect(clients.map(({ text }) => text)).toEqual(clients.map(({ id }) => id))
    expect(clients[0]?.endedMs).toBeGreaterThan(clients[49]?.endedMs ?? NaN)
  })

  it('a batcher fails a request that the engine cancels unasked: EngineContractError', async () => {
    const { pass, send, batcher, addWorker } = open()
    await batcher.removeWorker('w0')
    addWorker('w1').generate = async (requests, listener) => {
      for (const { id } of requests) listener.end(id, { kind: 'canceled' })
    }
    const one = send('a')
    await pass(0)
    expect([one.outcome, batcher.breaches]).toEqual(['EngineContractError', 1])
  })

  it.each([undefined, null, 'done', {}, { kind: 'finished' }])(
    'row 77: a batcher fails only the request with an invalid end (%j)',
    async (garbage) => {
      const { pass, send, batcher, addWorker } = open()
      await batcher.removeWorker('w0')
      addWorker('w1').generate = async (requests, listener) => {
        const usage = { promptTokens: 1, completionTokens: 1 }
        const done = { kind: 'done', finishReason: 'stop', usage } as const
        for (const { id } of requests) {
          listener.end(id, id === 'a' ? (garbage as unknown as GenerationEnd) : done)
        }
      }
      const [a, b] = [send('a'), send('b')]
      await pass(0)
      expect([a.outcome, b.outcome]).toEqual(['EngineContractError', 'done'])
      expect([batcher.breaches, batcher.running]).toEqual([1, 0])
      await batcher.drain(new AbortController().signal)
    },
  )
})

describe('a batcher whose engine rejects a batch', () => {
  it('row 78: one bad prompt in a batch of 1024 fails alone', async () => {
    const script = (id: string): Partial<Script> => ({ outcome: id === 'r7' ? 'poison' : 'done' })
    const isolated = { admits: 'step', slots: 2048 } as const
    const { pass, sendMany, worker } = open({ script, capacity: isolated })
    const clients = sendMany(1024)
    await pass(0)
    await pass(0)
    const bad = clients.filter(({ outcome }) => outcome !== 'done')
    expect(bad.map(({ id, outcome }) => [id, outcome])).toEqual([['r7', 'engine_error']])
    expect(clients.every(({ ends, workers }) => ends.length + workers.length === 2)).toBe(true)
    expect(worker.calls[0]).toHaveLength(1024)
    expect(worker.calls.slice(1).every(({ length }) => length === 1)).toBe(true)
  })

  it('a request that fails alone has the error of the engine as its cause', async () => {
    const { pass, send, worker } = open({ script: () => ({ outcome: 'poison' }) })
    const one = send('a')
    await pass(0)
    const [end] = one.ends
    expect(worker.calls).toEqual([['a']])
    if (end?.kind !== 'failed' || !(end.error instanceof InferenceError)) throw new Error('wrong')
    expect(end.error.cause).toEqual(new Error('poisoned by a'))
  })

  it('a batcher does not retry a rejected request whose client has received text', async () => {
    const script = (id: string): Partial<Script> =>
      id === 'a' ? { delayMs: 10, outcome: 'poison' } : { ...slow, isEarly: id === 'b' }
    const { pass, send, worker } = open({ script })
    const [, b, c] = [send('a'), send('b'), send('c')]
    await pass(10)
    expect([b.outcome, c.outcome]).toEqual(['engine_error', 'open'])
    await pass(10)
    await pass(100)
    expect([c.outcome, worker.calls]).toEqual(['done', [['a', 'b', 'c'], ['a'], ['c']]])
  })

  it('a batcher retries each request of a rejected batch in a batch of its own', async () => {
    const script = (id: string): Partial<Script> =>
      id === 'a' ? { delayMs: 10, outcome: 'poison' } : { delayMs: 20 }
    const { pass, send, worker } = open({ script })
    for (const id of ['a', 'b']) send(id)
    await pass(5)
    send('later')
    send('urgent', { priority: 1 })
    for (let at = 0; at < 5; at++) await pass(20)
    expect(worker.calls).toEqual([['a', 'b'], ['urgent'], ['a'], ['b'], ['later']])
  })

  it('a batcher retries a rejected batch immediately under the fixed policy, too', async () => {
    const policy = { ...adaptive, type: 'fixed', maxBatchSize: 2 } as const
    const script = (id: string): Partial<Script> => ({ outcome: id === 'a' ? 'poison' : 'done' })
    const { pass, send } = open({ policy, script })
    const [a, b] = [send('a'), send('b')]
    await pass(0)
    await pass(0)
    expect([a.outcome, b.outcome]).toEqual(['engine_error', 'done'])
  })
})

describe('a batcher whose engine is lost', () => {
  it('row 79: a batcher retries requests of a lost engine ahead of later ones', async () => {
    const { pass, send, batcher, worker, addWorker } = open({ script: () => slow })
    const lost = [send('a'), send('b')]
    await pass(10)
    const later = send('c')
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

  it('row 79: a batcher fails a request that has text, and one that lost two engines', async () => {
    const script = (id: string): Partial<Script> => ({ ...slow, isEarly: id === 'a' })
    const { pass, send, worker } = open({ script })
    const [a, b] = [send('a'), send('b')]
    await pass(10)
    worker.lose()
    await pass(0)
    expect([a.outcome, b.outcome]).toEqual(['engine_lost', 'open'])
    await pass(10)
    worker.lose()
    await pass(0)
    expect([b.outcome, worker.calls]).toEqual(['engine_lost', [['a', 'b'], ['b']]])
  })

  it('row 79: a batcher restarts a request with unread text, once', async () => {
    const { pass, send, batcher, addWorker } = open()
    await batcher.removeWorker('w0')
    let lives = 0
    addWorker('w1').generate = async (requests, listener) => {
      lives++
      for (const { id } of requests) void listener.delta(id, { text: `half ${lives}` })
      if (lives !== 2) throw inferenceError('engine_lost', 'it crashed')
      const usage = { promptTokens: 1, completionTokens: 1 }
      for (const { id } of requests) listener.end(id, { kind: 'done', finishReason: 'stop', usage })
    }
    const unread = send('a')
    unread.isUnread = true
    await pass(0)
    await pass(0)
    expect([unread.outcome, unread.text, lives]).toEqual(['done', 'half 2', 2])
    const read = send('b')
    await pass(0)
    expect([read.outcome, read.text, lives]).toEqual(['engine_lost', 'half 3', 3])
  })
})

describe('a batcher whose engine hangs', () => {
  it('row 79: a batcher aborts a request after the engine time-out and fails it', async () => {
    const { pass, send, worker, clock } = open({
      engineTimeoutMs: 1000,
      script: (id) => ({ outcome: id === 'a' ? 'hang' : 'done' }),
    })
    const [a, b] = [send('a'), send('b')]
    await pass(999)
    expect([a.outcome, b.outcome]).toEqual(['open', 'done'])
    await pass(1)
    expect([a.outcome, a.endedMs, worker.held.size]).toEqual(['engine_timeout', 1000, 0])
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 79: a request that the engine forgot times out with one that hangs', async () => {
    const { pass, send, worker, clock, reports } = open({
      engineTimeoutMs: 40,
      script: (id) => ({ outcome: id === 'forgotten' ? 'forget' : 'hang' }),
    })
    const [forgotten, hanging] = [send('forgotten'), send('hanging')]
    await pass(39)
    expect([forgotten.outcome, hanging.outcome]).toEqual(['open', 'open'])
    await pass(1)
    for (const { outcome, endedMs } of [forgotten, hanging]) {
      expect([outcome, endedMs]).toEqual(['engine_timeout', 40])
    }
    await pass(0)
    expect([worker.calls, worker.held.size]).toEqual([[['forgotten', 'hanging']], 0])
    expect(reports).toMatchObject([{ size: 2, durationMs: 40, error: null }])
    expect(clock.pendingTimers).toBe(0)
  })

  it('row 79: a batcher gives up an engine that does not end an aborted request', async () => {
    const reasons: string[] = []
    const script = (): Partial<Script> => ({ outcome: 'hang', abortLagMs: 1e6 })
    const { pass, send, worker } = open({ engineTimeoutMs: 1000, script })
    Object.assign(worker, { markLost: (reason: string) => reasons.push(reason) })
    const [a, b] = [send('a'), send('b')]
    await pass(500)
    b.cancel()
    await pass(999)
    expect([a.outcome, reasons]).toEqual(['engine_timeout', []])
    await pass(1)
    expect(reasons).toEqual(['an aborted request had not ended after 1 s'])
  })

  it('text, and a client that holds text back, restart the engine time-out', async () => {
    const { pass, send, batcher, addWorker } = open({ engineTimeoutMs: 1000 })
    await batcher.removeWorker('w0')
    const talks: (() => unknown)[] = []
    addWorker('w1').generate = (requests, listener) => {
      for (const { id } of requests) talks.push(() => listener.delta(id, { text: '.' }))
      return new Promise(() => {})
    }
    const [talking, reading] = [send('a'), send('b')]
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

describe('closing a batcher', () => {
  it('a removed worker finishes its requests and gets no more', async () => {
    const { pass, send, batcher, worker } = open({ script: () => slow })
    const one = send('a')
    await pass(50)
    let hasLeft = false
    const leaving = batcher.removeWorker('w0').then(() => (hasLeft = true))
    send('b')
    await pass(49)
    expect(hasLeft).toBe(false)
    await pass(1)
    await leaving
    expect([one.outcome, worker.calls, batcher.queued]).toEqual(['done', [['a']], 1])
    await batcher.removeWorker('w0')
  })

  it('a drain sends queued requests at once and resolves when all have ended', async () => {
    const policy = { ...adaptive, type: 'fixed' } as const
    const { pass, send, batcher, clock } = open({ policy, script: () => slow })
    const one = send('a')
    await pass(0)
    let isDrained = false
    const draining = batcher.drain(new AbortController().signal).then(() => (isDrained = true))
    expect(send('b').outcome).toBe('closing')
    await pass(99)
    expect([one.outcome, isDrained]).toEqual(['open', false])
    await pass(1)
    await draining
    expect([one.outcome, clock.pendingTimers]).toEqual(['done', 0])
  })

  it('a drain whose signal aborts cancels the rest', async () => {
    const { pass, send, batcher, worker } = open({ script: () => slow })
    const running = send('a')
    await pass(0)
    const waiting = send('b')
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

  it('a batcher rejects a request id or a worker id that is in use', async () => {
    const { send, addWorker } = open()
    send('a')
    expect(() => send('a')).toThrow('request a is already in the batcher')
    expect(() => addWorker('w0')).toThrow('worker w0 is already in the batcher')
  })
})
