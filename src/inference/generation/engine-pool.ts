/** Owns the engines: starts, watches, restarts and scales them. It gives them no requests. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf, StateError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { Service } from '../../foundation/service.ts'
import type { Batcher } from './batcher.ts'
import type { CreateEngine, InferenceEngine, ModelFacts } from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'
import { SupervisedWorker } from './supervised-worker.ts'

export interface EnginePoolParts {
  readonly createEngine: CreateEngine
  /** How many to start with. */
  readonly workers: number
  /** Gets each worker while it serves. */
  readonly batcher: Batcher
  readonly clock: Clock
  readonly log: Log
  /** An engine that had served is gone; it will be started anew. */
  readonly onLost: (notice: { readonly workerId: string; readonly reason: string }) => void
}

/**
 * `start` resolves when a first engine serves, and rejects with the first one's error when none
 * does. From then on an engine that is lost or does not start is tried again, with longer and
 * longer pauses. `stop` closes everything, also what is just starting.
 */
export class EnginePool extends Service {
  readonly #parts: EnginePoolParts
  readonly #workers = new Map<number, SupervisedWorker>()
  #wanted: number
  #isRunning = false
  /** Warnings and their errors until it is known whether any engine starts; `null` after that. */
  #early: Map<string, unknown> | null = null
  #model: ModelFacts | null = null
  #stopped: Promise<void> | null = null

  constructor(parts: EnginePoolParts) {
    super()
    this.#parts = parts
    this.#wanted = parts.workers
  }

  /** What the first engine said of its model. */
  get model(): ModelFacts {
    if (this.#model === null) throw new StateError('no engine has started yet')
    return this.#model
  }

  /** How many serve now. */
  get workers(): number {
    return this.#engines().length
  }

  /** How many serve, start or are about to be started anew. */
  get staying(): number {
    return this.#staying().length
  }

  /** Why nobody serves now; `null` when somebody does. */
  get unready(): string | null {
    if (this.workers > 0) return null
    if (!this.#isRunning) return this.#stopped === null ? 'not started' : 'closed'
    const [first] = this.#workers.values()
    return first?.trouble ?? 'no worker is wanted'
  }

  async tokenize(text: string): Promise<readonly number[]> {
    const [engine] = this.#engines()
    if (engine === undefined) throw inferenceError('not_ready', this.unready ?? 'not ready')
    return engine.tokenize(text)
  }

  /** Grows without waiting, shrinks one by one by draining. Idempotent. */
  resize(workers: number): void {
    this.#wanted = workers
    this.#adjust()
  }

  override stop(): Promise<void> {
    this.#isRunning = false
    this.#stopped ??= this.#closeAll().then(() => super.stop())
    return this.#stopped
  }

  protected async onStart(): Promise<void> {
    this.#isRunning = true
    this.#early = new Map()
    this.#adjust()
    const starts = [...this.#workers.values()].map(({ firstStart }) => firstStart)
    try {
      await Promise.any(starts)
      this.#warnOfEarly(null)
    } catch (error) {
      // One that failed first may have come up since.
      if (this.workers > 0) return this.#warnOfEarly(null)
      this.#isRunning = false
      await this.#closeAll()
      const first: unknown = error instanceof AggregateError ? (error.errors[0] ?? error) : error
      this.#warnOfEarly(messageOf(first))
      throw first
    }
  }

  #onStartFailed(text: string, error: unknown): void {
    if (this.#early === null) this.#parts.log.warn('EngineStartFailed', text)
    else this.#early.set(text, error)
  }

  /** Says nothing of those that failed for the reason that the caller is told. */
  #warnOfEarly(told: string | null): void {
    const early = this.#early ?? new Map<string, unknown>()
    this.#early = null
    for (const [text, error] of early) {
      if (messageOf(error) !== told) this.#parts.log.warn('EngineStartFailed', text)
    }
  }

  protected async onStop(): Promise<void> {}

  #adjust(): void {
    if (!this.#isRunning) return
    const staying = this.#staying()
    // One that still drains keeps its index, and so its part of the hardware.
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

  /** The youngest goes, first of all one that does not serve. */
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

  #engines(): InferenceEngine[] {
    return [...this.#workers.values()].flatMap(({ engine }) => engine ?? [])
  }
}
