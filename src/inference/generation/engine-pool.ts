/** Owns the engines: starts, watches, restarts and scales them. Sends them no requests. */

import { messageOf, StateError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import type {
  GenerationInput,
  InferenceEngine,
  ModelFacts,
  PromptTokens,
} from './inference-engine.ts'
import { inferenceError } from './inference-errors.ts'
import {
  type EngineProxy,
  type ForwardedAnswer,
  type ForwardedCall,
  getProxy,
} from './pass-through.ts'
import { SupervisedWorker, type WorkerParts } from './supervised-worker.ts'

export interface EnginePoolParts extends Omit<WorkerParts, 'onServing' | 'onStartFailed'> {
  readonly workers: number
  /** The first part of the ids of workers. Default `inference`. */
  readonly workerPrefix?: string
}

/** `start` resolves when the first engine serves. Engines that are lost are restarted. */
export class EnginePool {
  readonly #parts: EnginePoolParts
  readonly #workers = new Map<number, SupervisedWorker>()
  #targetSize: number
  #nextProxyIndex = 0
  #isRunning = false
  /** Failures of first starts; `null` once it is known whether any engine starts. */
  #earlyFailures: Map<string, unknown> | null = null
  #model: ModelFacts | null = null
  #giveUpReason: string | null = null

  constructor(parts: EnginePoolParts) {
    this.#parts = parts
    this.#targetSize = parts.workers
  }

  get model(): ModelFacts {
    if (this.#model === null) throw new StateError('no engine has started yet')
    return this.#model
  }

  get workers(): number {
    return this.#servingEngines().length
  }

  /** How many requests the serving engines handle at a time. */
  get slots(): number {
    return this.#servingEngines().reduce((sum, { capacity }) => sum + capacity.slots, 0)
  }

  get size(): number {
    return this.#activeWorkers().length
  }

  get unreadyReason(): string | null {
    const serving = [...this.#workers.values()].filter(({ engine }) => engine !== null)
    const problems = serving.map(({ engineProblem }) => engineProblem)
    if (problems.length > 0) return problems.includes(null) ? null : (problems[0] ?? null)
    if (this.#giveUpReason !== null) return this.#giveUpReason
    if (!this.#isRunning) return this.stop.isCalled ? 'closed' : 'not started'
    const [first] = this.#workers.values()
    return first?.problem ?? 'no worker is configured'
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return this.#expectEngine().tokenize(text)
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    const engine = this.#expectEngine()
    if (engine.detokenize === undefined) throw unsupportedError('the texts of tokens')
    return engine.detokenize(tokens)
  }

  async readPrompt(input: GenerationInput): Promise<PromptTokens> {
    const engine = this.#expectEngine()
    if (engine.readPrompt === undefined) throw unsupportedError('the prompts of its model')
    return engine.readPrompt(input)
  }

  #expectEngine(): InferenceEngine {
    const [engine] = this.#servingEngines()
    if (engine === undefined) throw inferenceError('not_ready', this.unreadyReason ?? 'not ready')
    return engine
  }

  get proxy(): EngineProxy | null {
    const [first] = this.#servingEngines()
    const proxy = first === undefined ? null : getProxy(first)
    return proxy && { paths: proxy.paths, forward: (call) => this.#forward(call) }
  }

  async #forward(call: ForwardedCall): Promise<ForwardedAnswer> {
    const engines = this.#servingEngines()
    const engine = engines[this.#nextProxyIndex++ % Math.max(1, engines.length)]
    const proxy = engine === undefined ? null : getProxy(engine)
    if (proxy === null) throw inferenceError('not_ready', this.unreadyReason ?? 'not ready')
    return proxy.forward(call)
  }

  /** Adds workers immediately. Removes workers one by one, when their requests have ended. */
  resize(workers: number): void {
    this.#targetSize = workers
    this.#scale()
  }

  giveUp(reason: string): Promise<void> {
    this.#giveUpReason = reason
    return this.stop()
  }

  /** Closes the engines, even those that have not started yet. */
  readonly stop = once(async (): Promise<void> => {
    this.#isRunning = false
    await this.#closeAll()
    await this.start.promise?.catch(() => {})
  })

  readonly start = once(async (): Promise<void> => {
    if (this.stop.isCalled) return
    this.#isRunning = true
    this.#earlyFailures = new Map()
    this.#scale()
    const starts = [...this.#workers.values()].map(({ firstStart }) => firstStart)
    try {
      await Promise.any(starts)
      this.#logEarlyFailures(null)
    } catch (error) {
      // An engine whose first start failed may have been restarted, and may serve by now.
      if (this.workers > 0) return this.#logEarlyFailures(null)
      this.#isRunning = false
      await this.#closeAll()
      const first: unknown = error instanceof AggregateError ? (error.errors[0] ?? error) : error
      this.#logEarlyFailures(messageOf(first))
      throw first
    }
  })

  #onStartFailed(text: string, error: unknown): void {
    if (this.#earlyFailures === null) this.#parts.log.warn('EngineStartFailed', text)
    else this.#earlyFailures.set(text, error)
    // Suspends the batcher only if every worker fails, because any other worker may serve soon.
    if (this.#activeWorkers().every(({ isFailing }) => isFailing)) this.#parts.batcher.suspend(text)
  }

  #logEarlyFailures(reported: string | null): void {
    const failures = this.#earlyFailures ?? new Map<string, unknown>()
    this.#earlyFailures = null
    for (const [text, error] of failures) {
      if (messageOf(error) !== reported) this.#parts.log.warn('EngineStartFailed', text)
    }
  }

  #scale(): void {
    if (!this.#isRunning) return
    const active = this.#activeWorkers()
    // Draining workers keep their index and their share of the hardware until they are closed.
    for (let at = this.#workers.size; at < this.#targetSize; at++) this.#addWorker()
    const isShrinking = active.length < this.#workers.size
    if (active.length > this.#targetSize && !isShrinking) void this.#retireNewest(active)
  }

  #activeWorkers(): SupervisedWorker[] {
    return [...this.#workers.values()].filter(({ isRetiring }) => !isRetiring)
  }

  #addWorker(): void {
    let index = 0
    while (this.#workers.has(index)) index++
    const onServing = (facts: ModelFacts): void => {
      this.#model ??= facts
    }
    const onStartFailed = (text: string, error: unknown): void => this.#onStartFailed(text, error)
    const worker = { index, workerId: `${this.#parts.workerPrefix ?? 'inference'}-${index}` }
    const parts = { ...this.#parts, onServing, onStartFailed }
    this.#workers.set(index, new SupervisedWorker(worker, parts))
  }

  async #retireNewest(active: readonly SupervisedWorker[]): Promise<void> {
    const retiring = active.findLast(({ engine }) => engine === null) ?? active.at(-1)
    const [index, worker] = [...this.#workers].find(([, one]) => one === retiring) ?? []
    if (index === undefined) return
    await worker?.retire()
    this.#workers.delete(index)
    this.#scale()
  }

  async #closeAll(): Promise<void> {
    await Promise.all(Array.from(this.#workers.values(), (worker) => worker.close()))
    this.#workers.clear()
  }

  #servingEngines(): InferenceEngine[] {
    return [...this.#workers.values()].flatMap(({ engine }) => engine ?? [])
  }
}

const unsupportedError = (what: string): Error =>
  inferenceError('unsupported', `this engine does not report ${what}`)
