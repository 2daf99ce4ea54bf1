import { describe, expect, it } from 'vitest'
import { sleep } from '../../../src/foundation/clock.ts'
import { Autoscaler } from '../../../src/inference/generation/autoscaler.ts'
import { Batcher } from '../../../src/inference/generation/batcher.ts'
import type { CreateEngine } from '../../../src/inference/generation/inference-engine.ts'
import { EnginePool } from '../../../src/inference/generation/engine-pool.ts'
import { greedySampling } from '../../../src/testing/engine-contract.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { createObedientEngine } from '../open-backend.ts'

const config = {
  minWorkers: 1,
  maxWorkers: 4,
  targetOngoingRequests: 2,
  spinUpSeconds: 3,
  spinDownSeconds: 10,
}

/** Engines with two slots each, on a manual clock. */
async function open(startMs = 0) {
  const clock = new ManualClock()
  const policy = { type: 'adaptive', maxBatchSize: 2, maxBatchWaitMs: 0, isOn: true } as const
  const batcher = new Batcher({
    clock,
    policy,
    queueLimit: 100,
    engineTimeoutMs: Infinity,
    onBatchEnded() {},
  })
  let made = 0
  const createEngine: CreateEngine = (worker) => {
    const engine = createObedientEngine(worker)
    made++
    const isFirst = made === 1
    return Object.assign(engine, {
      capacity: { admits: 'step', slots: 2 } as const,
      async start() {
        if (!isFirst && startMs > 0) await sleep(clock, startMs)
        return { name: 'tiny', contextLength: 100, hasChatTemplate: true }
      },
    })
  }
  const log = { warn() {} }
  const pool = new EnginePool({ createEngine, workers: 1, batcher, clock, log, onLost() {} })
  await pool.start()
  const scaler = new Autoscaler({ clock, batcher, pool, config })
  scaler.start()
  const ask = (id: string): AbortController => {
    const abort = new AbortController()
    scaler.recordArrival()
    batcher.enqueue({
      request: {
        id,
        input: { kind: 'text', text: 'endless' },
        sampling: greedySampling,
        signal: abort.signal,
      },
      priority: 0,
      isBounded: true,
      timeoutMs: null,
      listener: { started() {}, delta: () => undefined, end() {} },
    })
    return abort
  }
  return { clock, pool, scaler, ask, made: () => made }
}

describe('the autoscaler', () => {
  it('the autoscaler adds workers to the limit under load, then removes one by one', async () => {
    const { clock, pool, scaler, ask } = await open()
    const asked = Array.from({ length: 20 }, (_, at) => ask(String(at)))
    await clock.advance(1000)
    expect(pool.workers).toBe(2)
    await clock.advance(10_000)
    expect(pool.workers).toBe(4)
    for (const one of asked) one.abort()
    const seen = new Set<number>()
    for (let second = 0; second < 120; second++) {
      await clock.advance(1000)
      seen.add(pool.workers)
    }
    expect([...seen]).toEqual([4, 3, 2, 1])
    scaler.stop()
    await pool.stop()
    expect(clock.pendingTimers).toBe(0)
  })

  it('the autoscaler waits for workers that start slowly before it adds more', async () => {
    const { clock, pool, scaler, ask, made } = await open(20_500)
    for (const id of ['a', 'b', 'c', 'd']) ask(id)
    for (let step = 0; step < 400; step++) await clock.advance(100)
    expect([made(), pool.workers]).toEqual([2, 2])
    scaler.stop()
    await pool.stop()
  })

  it('the autoscaler keeps the number of workers under a low load', async () => {
    const { clock, pool, scaler, ask } = await open()
    ask('one')
    await clock.advance(60_000)
    expect(pool.workers).toBe(1)
    scaler.stop()
    await pool.stop()
  })
})
