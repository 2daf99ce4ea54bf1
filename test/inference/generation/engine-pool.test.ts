import { describe, expect, it } from 'vitest'
import type { BatchReport } from '../../../src/inference/generation/batch-run.ts'
import { Batcher } from '../../../src/inference/generation/batcher.ts'
import type {
  EngineWorker,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../../../src/inference/generation/inference-engine.ts'
import { EnginePool } from '../../../src/inference/generation/engine-pool.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { TestClient } from './test-client.ts'
import { adaptive } from './open-batcher.ts'

const facts: ModelFacts = { name: 'puppet', contextLength: 64, hasChatTemplate: true }

/** An engine that a test moves by hand. */
class Puppet implements InferenceEngine {
  readonly capacity = { admits: 'batch', slots: 8 } as const
  readonly worker: EngineWorker
  readonly begun = Promise.withResolvers<ModelFacts>()
  readonly loss = Promise.withResolvers<string>()
  readonly asked: string[] = []
  readonly #open = new Map<string, GenerationListener>()
  readonly #settle: PromiseWithResolvers<void>[] = []
  closes = 0
  isMute = false

  constructor(worker: EngineWorker) {
    this.worker = worker
  }

  start(): Promise<ModelFacts> {
    return this.begun.promise
  }

  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void> {
    const settled = Promise.withResolvers<void>()
    this.#settle.push(settled)
    for (const { id } of requests) this.#open.set(id, listener)
    this.asked.push(...requests.map(({ id }) => id))
    return settled.promise
  }

  answer(): void {
    const usage = { promptTokens: 1, completionTokens: 1 }
    for (const [id, listener] of this.#open) {
      listener.end(id, { kind: 'done', finishReason: 'stop', usage })
    }
    this.#open.clear()
    for (const { resolve } of this.#settle.splice(0)) resolve()
  }

  crash(): void {
    for (const { reject } of this.#settle.splice(0)) reject(inferenceError('engine_lost', 'SEGV'))
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return Array.from(text, (_, at) => at)
  }

  lost(): Promise<string> {
    return this.loss.promise
  }

  async close(): Promise<void> {
    this.closes++
    if (this.isMute) return
    for (const [id, listener] of this.#open) {
      listener.end(id, { kind: 'failed', error: inferenceError('closing', 'closed') })
    }
    for (const { resolve } of this.#settle.splice(0)) resolve()
  }
}

function open(workers = 1) {
  const clock = new ManualClock()
  const reports: BatchReport[] = []
  const batcher = new Batcher({
    clock,
    policy: adaptive,
    queueLimit: 100,
    onBatch: (report) => reports.push(report),
    engineTimeoutMs: 1000,
  })
  const puppets: Puppet[] = []
  const losses: string[] = []
  const warnings: string[] = []
  const pool = new EnginePool({
    createEngine: (worker) => {
      const puppet = new Puppet(worker)
      puppets.push(puppet)
      return puppet
    },
    workers,
    batcher,
    clock,
    log: { warn: (code, message) => warnings.push(`${code}: ${message}`) },
    onLost: ({ workerId, reason }) => losses.push(`${workerId}: ${reason}`),
  })
  const puppet = (at: number): Puppet => puppets[at] as Puppet
  const ask = (id: string): TestClient => new TestClient(clock, id).ask(batcher)
  const pass = async (ms: number): Promise<void> => {
    for (const step of [0, ms, 0]) await clock.advance(step)
  }
  const serve = async (): Promise<void> => {
    const starting = pool.start()
    for (const one of puppets) one.begun.resolve(facts)
    await starting
    await pass(0)
  }
  return { batcher, puppets, puppet, losses, warnings, pool, ask, pass, serve, clock }
}

describe('the start of a pool', () => {
  it('is over when a first engine serves, and knows the model then', async () => {
    const { pool, puppet, puppets, pass } = open(2)
    expect(() => pool.model).toThrow('no engine has started yet')
    expect([pool.unready, pool.workers]).toEqual(['not started', 0])
    const starting = pool.start()
    expect(puppets.map(({ worker }) => worker)).toEqual([
      { index: 0, workerId: 'inference-0' },
      { index: 1, workerId: 'inference-1' },
    ])
    expect(pool.unready).toBe('inference-0 is starting')
    await expect(pool.tokenize('text')).rejects.toMatchObject({ code: 'not_ready' })
    puppet(1).begun.resolve(facts)
    await starting
    expect([pool.model, pool.workers, pool.unready]).toEqual([facts, 1, null])
    puppet(0).begun.resolve(facts)
    await pass(0)
    expect(pool.workers).toBe(2)
    expect(await pool.tokenize('text')).toEqual([0, 1, 2, 3])
    await pool.stop()
  })

  it('row 79: rejects with the first error when none starts, and closes them all', async () => {
    const { pool, puppets, puppet, pass, clock, warnings } = open(3)
    const starting = pool.start()
    puppet(1).begun.reject(new Error('out of memory'))
    puppet(0).begun.reject(new Error('no such model'))
    puppet(2).begun.reject(new Error('no such model'))
    await expect(starting).rejects.toThrow('no such model')
    // What the caller hears is not told twice; what only another one says would be lost.
    expect(warnings).toEqual(['EngineStartFailed: inference-1 did not start: out of memory'])
    expect(puppets.map(({ closes }) => closes)).toEqual([1, 1, 1])
    await pass(60_000)
    expect([puppets.length, clock.pendingTimers]).toEqual([3, 0])
    await pool.stop()
  })

  it('goes on with one engine while another is tried again', async () => {
    const { pool, puppet, puppets, pass, warnings } = open(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    puppet(1).begun.resolve(facts)
    await starting
    expect(warnings).toEqual(['EngineStartFailed: inference-0 did not start: out of memory'])
    await pass(500)
    puppet(2).begun.resolve(facts)
    await pass(0)
    expect([pool.workers, puppets.length]).toEqual([2, 3])
    await pool.stop()
  })

  it('tells of one that keeps failing once it is known that another serves', async () => {
    const { pool, puppet, pass, warnings } = open(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    await pass(500)
    puppet(2).begun.reject(new Error('out of memory'))
    await pass(0)
    expect(warnings).toEqual([])
    puppet(1).begun.resolve(facts)
    await starting
    const warning = 'EngineStartFailed: inference-0 did not start: out of memory'
    expect(warnings).toEqual([warning])
    await pass(1000)
    puppet(3).begun.reject(new Error('out of memory'))
    await pass(0)
    expect(warnings).toEqual([warning, warning])
    await pool.stop()
  })

  it('counts one that failed at first and serves when the last has failed', async () => {
    const { pool, puppet, pass } = open(2)
    const starting = pool.start()
    puppet(0).begun.reject(new Error('out of memory'))
    await pass(500)
    puppet(2).begun.resolve(facts)
    await pass(0)
    puppet(1).begun.reject(new Error('out of memory'))
    await starting
    expect([pool.workers, pool.unready]).toEqual([1, null])
    await pool.stop()
  })

  it('is given up by a stop', async () => {
    const { pool, puppet } = open()
    const starting = pool.start()
    const stopping = pool.stop()
    await expect(starting).rejects.toMatchObject({ code: 'closing' })
    await stopping
    expect([puppet(0).closes, pool.unready]).toEqual([1, 'closed'])
    expect(pool.stop()).toBe(stopping)
  })
})

describe('a lost engine of a pool', () => {
  it('row 79: is closed and started anew, and its requests move', async () => {
    const { pool, puppet, puppets, pass, serve, losses, ask } = open()
    await serve()
    const one = ask('a')
    await pass(0)
    expect(puppet(0).asked).toEqual(['a'])
    puppet(0).loss.resolve('killed by SIGKILL')
    await pass(0)
    expect([pool.unready, pool.workers]).toEqual(['inference-0 was lost: killed by SIGKILL', 0])
    expect([losses, puppet(0).closes]).toEqual([['inference-0: killed by SIGKILL'], 1])
    await pass(499)
    expect(puppets).toHaveLength(1)
    await pass(1)
    puppet(1).begun.resolve(facts)
    await pass(0)
    expect([puppet(1).worker.workerId, puppet(1).asked]).toEqual(['inference-0', ['a']])
    puppet(1).answer()
    expect([one.outcome, pool.unready]).toEqual(['done', null])
    await pool.stop()
  })

  it('row 79: is noticed by a batch that says so', async () => {
    const { pool, puppet, pass, serve, losses, ask } = open()
    await serve()
    ask('a')
    await pass(0)
    puppet(0).crash()
    await pass(0)
    expect([losses, puppet(0).closes]).toEqual([['inference-0: SEGV'], 1])
    await pool.stop()
  })

  it('row 79: is one that hangs and does not let go', async () => {
    const { pool, puppet, pass, serve, losses, ask } = open()
    await serve()
    puppet(0).isMute = true
    const one = ask('a')
    await pass(1000)
    expect([one.outcome, losses]).toEqual(['engine_timeout', []])
    await pass(1000)
    expect(losses).toEqual(['inference-0: an aborted request had not ended after 1 s'])
    await pass(500)
    puppet(1).begun.resolve(facts)
    const next = ask('b')
    await pass(0)
    puppet(1).answer()
    expect(next.outcome).toBe('done')
    await pool.stop()
  })

  it('row 79: is tried again after longer and longer pauses, and says why meanwhile', async () => {
    const { pool, puppets, puppet, pass, serve, warnings } = open()
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    for (const [at, pauseMs] of [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].entries()) {
      await pass(pauseMs - 1)
      expect(puppets).toHaveLength(at + 1)
      await pass(1)
      expect(puppets).toHaveLength(at + 2)
      puppet(at + 1).begun.reject(new Error('no memory'))
      await pass(0)
      expect(pool.unready).toBe('inference-0 did not start: no memory')
    }
    expect(warnings).toHaveLength(8)
    await pass(30_000)
    puppets.at(-1)?.begun.resolve(facts)
    await pass(30_000)
    puppets.at(-1)?.loss.resolve('gone again')
    await pass(0)
    const before = puppets.length
    await pass(500)
    expect(puppets).toHaveLength(before + 1)
    await pool.stop()
  })

  it('does not come back after a stop', async () => {
    const { pool, puppets, puppet, pass, serve, clock } = open()
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    await pool.stop()
    await pass(60_000)
    expect([puppets.length, puppet(0).closes, clock.pendingTimers]).toEqual([1, 1, 0])
  })
})

describe('resizing a pool', () => {
  it('grows at once and shrinks one by one, after they have finished', async () => {
    const { pool, puppets, puppet, pass, serve, ask } = open()
    await serve()
    pool.resize(3)
    pool.resize(3)
    expect(puppets).toHaveLength(3)
    puppet(1).begun.resolve(facts)
    puppet(2).begun.resolve(facts)
    await pass(0)
    expect(pool.workers).toBe(3)
    const askers = []
    for (const id of ['a', 'b', 'c']) {
      askers.push(ask(id))
      await pass(0)
    }
    pool.resize(1)
    pool.resize(1)
    await pass(0)
    expect([pool.workers, puppet(2).closes]).toEqual([2, 0])
    puppet(2).answer()
    await pass(0)
    expect([pool.workers, puppet(2).closes, puppet(1).closes]).toEqual([1, 1, 0])
    puppet(1).answer()
    puppet(0).answer()
    await pass(0)
    expect([pool.workers, puppet(1).closes, puppet(0).closes]).toEqual([1, 1, 0])
    expect(askers.map(({ outcome }) => outcome)).toEqual(['done', 'done', 'done'])
    await pool.stop()
  })

  it('starts nothing in the place of one that still drains', async () => {
    const { pool, puppets, puppet, pass, serve, ask } = open(2)
    await serve()
    ask('a')
    await pass(0)
    ask('b')
    await pass(0)
    pool.resize(1)
    pool.resize(2)
    await pass(0)
    expect([puppets.length, pool.workers]).toEqual([2, 1])
    puppet(1).answer()
    await pass(0)
    expect(puppets.map(({ worker }) => worker.index)).toEqual([0, 1, 1])
    await pool.stop()
  })

  it('lets one go first that does not serve', async () => {
    const { pool, puppet, pass, serve } = open(2)
    await serve()
    puppet(0).loss.resolve('gone')
    await pass(0)
    pool.resize(1)
    await pass(60_000)
    expect([pool.workers, puppet(1).closes]).toEqual([1, 0])
    await pool.stop()
  })
})

describe('the stop of a pool', () => {
  it('ends what its engines have, also when they do not', async () => {
    const { pool, puppet, puppets, pass, serve, ask } = open(2)
    await serve()
    const muted = [ask('a'), ask('b')]
    await pass(0)
    const other = ask('c')
    await pass(0)
    puppet(0).isMute = true
    await pool.stop()
    await pass(0)
    const outcomes = [...muted, other].map(({ outcome }) => outcome)
    expect(outcomes).toEqual(['closing', 'closing', 'closing'])
    expect(puppets.map(({ closes }) => closes)).toEqual([1, 1])
    expect([pool.workers, pool.unready]).toEqual([0, 'closed'])
    pool.resize(4)
    expect(puppets).toHaveLength(2)
  })
})
