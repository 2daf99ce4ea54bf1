/** An engine pool with a batcher, whose engines obey a test. */

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

export const facts: ModelFacts = { name: 'puppet', contextLength: 64, hasChatTemplate: true }

/** An engine whose start, loss and close a test triggers. */
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

export function openPool(workers = 1) {
  const clock = new ManualClock()
  const reports: BatchReport[] = []
  const batcher = new Batcher({
    clock,
    policy: adaptive,
    queueLimit: 100,
    onBatchEnded: (report) => reports.push(report),
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
  const send = (id: string): TestClient => new TestClient(clock, id).send(batcher)
  const pass = async (ms: number): Promise<void> => {
    for (const step of [0, ms, 0]) await clock.advance(step)
  }
  const serve = async (): Promise<void> => {
    const starting = pool.start()
    for (const one of puppets) one.begun.resolve(facts)
    await starting
    await pass(0)
  }
  return { batcher, puppets, puppet, losses, warnings, pool, send, pass, serve, clock }
}
