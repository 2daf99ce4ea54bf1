/** Owns the engines: starts, watches, restarts and scales them. Sends them no requests. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf, StateError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once, Service } from '../../foundation/service.ts'
import type { Batcher } from './batcher.ts'
import type { CreateEngine, InferenceEngine, ModelFacts } from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'
import {
  type EngineProxy,
  type ForwardedAnswer,
  type ForwardedCall,
  proxyOf,
} from './pass-through.ts'
import { SupervisedWorker } from './supervised-worker.ts'

export interface EnginePoolParts {
  readonly createEngine: CreateEngine
  /** The initial number of workers. */
  readonly workers: number
  /** Each worker is attached to this batcher while it serves. */
  readonly batcher: Batcher
  readonly clock: Clock
  readonly log: Log
  /** Called when a serving engine is lost, before it is restarted. */
  readonly onLost: (notice: { readonly workerId: string; readonly reason: string }) => void
}

/**
 * `start` resolves when the first engine serves, and rejects with the first error if none does.
 * Afterwards, an engine that is lost or fails to start is restarted with exponential back-off.
 * While no engine is able to start, bounded requests fail instead of waiting. `stop` closes all
 * engines, including those that are starting.
 */
export class EnginePool extends Service {
  readonly #parts: EnginePoolParts
  readonly #workers = new Map<number, SupervisedWorker>()
  #wanted: number
  #forwarded = 0
  #isRunning = false
  /** Start failures, collected until it is known whether any engine starts; `null` afterwards. */
  #earlyFailures: Map<string, unknown> | null = null
  #model: ModelFacts | null = null
  readonly #stop = once(() => this.#closeAll().then(() => super.stop()))
  /** Why `giveUp` was called; `null` if it was not. */
  #reason: string | null = null

  constructor(parts: EnginePoolParts) {
    super()
    this.#parts = parts
    this.#wanted = parts.workers
  }

  /** The model as the first started engine reported it. */
  get model(): ModelFacts {
    if (this.#model === null) throw new StateError('no engine has started yet')
    return this.#model
  }

  /** How many engines serve now. */
  get workers(): number {
    return this.#engines().length
  }

  /** How many workers serve, start or wait to be restarted. */
  get staying(): number {
    return this.#staying().length
  }

  /** Why no engine serves now; `null` if at least one does. */
  get unready(): string | null {
    const problems = this.#serving().map((worker) => worker.engineProblem)
    if (problems.length > 0) return problems.includes(null) ? null : (problems[0] ?? null)
    if (this.#reason !== null) return this.#reason
    if (!this.#isRunning) return this.#stop.isCalled ? 'closed' : 'not started'
    const [first] = this.#workers.values()
    return first?.problem ?? 'no worker is configured'
  }

  async tokenize(text: string): Promise<readonly number[]> {
    const [engine] = this.#engines()
    if (engine === undefined) throw inferenceError('not_ready', this.unready ?? 'not ready')
    return engine.tokenize(text)
  }

  /** Passes calls to the engines' proxies in turn; `null` if the engines have no proxy. */
  get proxy(): EngineProxy | null {
    const [first] = this.#engines()
    const proxy = first === undefined ? null : proxyOf(first)
    return proxy && { paths: proxy.paths, forward: (call) => this.#forward(call) }
  }

  async #forward(call: ForwardedCall): Promise<ForwardedAnswer> {
    const engines = this.#engines()
    const engine = engines[this.#forwarded++ % Math.max(1, engines.length)]
    const proxy = engine === undefined ? null : proxyOf(engine)
    if (proxy === null) throw inferenceError('not_ready', this.unready ?? 'not ready')
    return proxy.forward(call)
  }

  /** Adds workers immediately; removes them one by one, each after its requests have ended. */
  resize(workers: number): void {
    this.#wanted = workers
    this.#adjust()
  }

  /** Stops the pool, because no engine can start any more. */
  giveUp(reason: string): Promise<void> {
    this.#reason = reason
    return this.stop()
  }

  override stop(): Promise<void> {
    this.#isRunning = false
    return this.#stop()
  }

  protected async onStart(): Promise<void> {
    this.#isRunning = true
    this.#earlyFailures = new Map()
    this.#adjust()
    const starts = [...this.#workers.values()].map(({ firstStart }) => firstStart)
    try {
      await Promise.any(starts)
      this.#logEarlyFailures(null)
    } catch (error) {
      // An engine whose first start failed may have been restarted and serve by now.
      if (this.workers > 0) return this.#logEarlyFailures(null)
      this.#isRunning = false
      await this.#closeAll()
      const first: unknown = error instanceof AggregateError ? (error.errors[0] ?? error) : error
      this.#logEarlyFailures(messageOf(first))
      throw first
    }
  }

  #onStartFailed(text: string, error: unknown): void {
    if (this.#earlyFailures === null) this.#parts.log.warn('EngineStartFailed', text)
    else this.#earlyFailures.set(text, error)
    // Suspends only if every worker fails: one whose latest start did not fail may serve soon.
    if (this.#staying().every(({ isFailing }) => isFailing)) this.#parts.batcher.suspend(text)
  }

  /** Logs the early failures, except those that the caller of `start` gets as an error. */
  #logEarlyFailures(reported: string | null): void {
    const early = this.#earlyFailures ?? new Map<string, unknown>()
    this.#earlyFailures = null
    for (const [text, error] of early) {
      if (messageOf(error) !== reported) this.#parts.log.warn('EngineStartFailed', text)
    }
  }

  protected async onStop(): Promise<void> {}

  #adjust(): void {
    if (!this.#isRunning) return
    const staying = this.#staying()
    // Draining workers count, because they keep their index and share of the hardware until closed.
    for (let at = this.#workers.size; at < this.#wanted; at++) this.#add()
    const isShrinking = staying.length < this.#workers.size
    if (staying.length > this.#wanted && !isShrinking) this.#retire(staying)
  }

  #staying(): SupervisedWorker[] {
    return [...this.#workers.values()].filter(({ isRetiring }) => !isRetiring)
  }

  #add(): void {
    let index = 0
    while (this.#workers.has(index)) index++
    const { createEngine, batcher, clock, log, onLost } = this.#parts
    const onServing = (facts: ModelFacts): void => {
      this.#model ??= facts
    }
    const onStartFailed = (text: string, error: unknown): void => this.#onStartFailed(text, error)
    const worker = { index, workerId: `inference-${index}` }
    const parts = { createEngine, batcher, clock, log, onServing, onStartFailed, onLost }
    this.#workers.set(index, new SupervisedWorker(worker, parts))
  }

  /** Removes the newest worker, preferably one that does not serve. */
  #retire(staying: readonly SupervisedWorker[]): void {
    const leaving = staying.findLast(({ engine }) => engine === null) ?? staying.at(-1)
    for (const [index, worker] of this.#workers) {
      if (worker !== leaving) continue
      void this.#release(index, worker)
    }
  }

  async #release(index: number, worker: SupervisedWorker): Promise<void> {
    await worker.retire()
    this.#workers.delete(index)
    this.#adjust()
  }

  async #closeAll(): Promise<void> {
    await Promise.all(Array.from(this.#workers.values(), (worker) => worker.close()))
    this.#workers.clear()
  }

  #serving(): SupervisedWorker[] {
    return [...this.#workers.values()].filter(({ engine }) => engine !== null)
  }

  #engines(): InferenceEngine[] {
    return [...this.#workers.values()].flatMap(({ engine }) => engine ?? [])
  }
}
