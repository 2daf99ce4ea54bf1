/** One worker of the pool: starts its engine, watches it, and restarts it when it is lost. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { supervise, type SupervisedRun } from '../../runtime/retry.ts'
import type { Batcher } from './batcher.ts'
import type {
  CreateEngine,
  EngineWorker,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from './inference-engine.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { toInferenceCode, inferenceError } from './inference-errors.ts'

export interface WorkerParts {
  readonly createEngine: CreateEngine
  readonly batcher: Batcher
  readonly clock: Clock
  readonly log: Log
  readonly onServing: (facts: ModelFacts) => void
  readonly onStartFailed: (text: string, error: unknown) => void
  readonly onLost: (notice: { readonly workerId: string; readonly reason: string }) => void
}

const restartPolicy = { firstDelayMs: 500, maxDelayMs: 30_000, steadyMs: 30_000 }

/** The worker is in the batcher while its engine serves. Its id stays the same after a restart. */
export class SupervisedWorker {
  readonly #worker: EngineWorker
  readonly #parts: WorkerParts
  readonly #closing = new AbortController()
  readonly #firstStart = Promise.withResolvers<void>()
  readonly #lifetime: Promise<void>
  #serving: ServingEngine | null = null
  isRetiring = false
  #problem = 'is starting'
  isFailing = false

  constructor(worker: EngineWorker, parts: WorkerParts) {
    this.#worker = worker
    this.#parts = parts
    this.#firstStart.promise.catch(() => {})
    this.#lifetime = this.#runUntilClosed()
  }

  /** Settles with the first start. The worker retries after a failed start. */
  get firstStart(): Promise<void> {
    return this.#firstStart.promise
  }

  get engine(): InferenceEngine | null {
    return this.isRetiring ? null : (this.#serving?.engine ?? null)
  }

  get engineProblem(): string | null {
    const problem = this.#serving?.engine.problem?.() ?? null
    return problem === null ? null : `${this.#worker.workerId} ${problem}`
  }

  get problem(): string {
    return `${this.#worker.workerId} ${this.#problem}`
  }

  async retire(): Promise<void> {
    this.isRetiring = true
    await this.#parts.batcher.removeWorker(this.#worker.workerId)
    await this.close()
  }

  close(): Promise<void> {
    this.#closing.abort(inferenceError('closing', 'the engine is being closed'))
    return this.#lifetime
  }

  async #runUntilClosed(): Promise<void> {
    const { clock } = this.#parts
    const { signal } = this.#closing
    const run = async (current: SupervisedRun): Promise<string> =>
      (this.#problem = await this.#runEngine(current))
    await supervise(restartPolicy, run, { clock, signal })
  }

  get #isStopping(): boolean {
    return this.isRetiring || this.#closing.signal.aborted
  }

  /** Creates, starts, serves and closes one engine; resolves with the reason why serving ended. */
  async #runEngine(run: SupervisedRun): Promise<string> {
    const { createEngine, batcher, onStartFailed } = this.#parts
    const { workerId } = this.#worker
    let engine: InferenceEngine | null = null
    let serving: ServingEngine | null = null
    try {
      engine = createEngine(this.#worker)
      const facts = await unlessAborted(this.#closing.signal, engine.start())
      serving = new ServingEngine(workerId, engine, this.#closing.signal)
      run.onReady()
      return await this.#serve(serving, facts)
    } catch (error) {
      this.#firstStart.reject(error)
      const reason = `did not start: ${messageOf(error)}`
      this.isFailing = true
      if (!this.#isStopping) onStartFailed(`${workerId} ${reason}`, error)
      return reason
    } finally {
      await this.#closeEngine(engine)
      serving?.rejectBatches(inferenceError('closing', `${workerId} was closed`))
      await batcher.removeWorker(workerId)
    }
  }

  async #serve(serving: ServingEngine, facts: ModelFacts): Promise<string> {
    const { batcher, onServing, onLost } = this.#parts
    const { workerId } = serving
    this.#serving = serving
    this.isFailing = false
    batcher.addWorker(serving)
    onServing(facts)
    this.#firstStart.resolve()
    const lostReason = await serving.ended
    this.#serving = null
    const drained = batcher.removeWorker(workerId)
    if (lostReason === null) return 'was closed'
    serving.rejectBatches(inferenceError('engine_lost', `${workerId} was lost: ${lostReason}`))
    onLost({ workerId, reason: lostReason })
    // Closing the engine earlier would end requests that can be retried on another engine.
    await drained
    return `was lost: ${lostReason}`
  }

  async #closeEngine(engine: InferenceEngine | null): Promise<void> {
    try {
      await engine?.close()
    } catch (error) {
      const text = `${this.#worker.workerId} did not close: ${messageOf(error)}`
      this.#parts.log.warn('EngineCloseFailed', text)
    }
  }
}

class ServingEngine {
  readonly workerId: string
  readonly engine: InferenceEngine
  readonly capacity: InferenceEngine['capacity']
  readonly nodeId: string | undefined
  /** Resolves with the reason of the loss, or with `null` when the worker is closed. */
  readonly ended: Promise<string | null>
  readonly #ended = Promise.withResolvers<string | null>()
  readonly #batchRejects = new Set<(error: Error) => void>()

  constructor(workerId: string, engine: InferenceEngine, closing: AbortSignal) {
    this.workerId = workerId
    this.engine = engine
    this.capacity = engine.capacity
    this.nodeId = engine.nodeId
    this.ended = this.#ended.promise
    if (closing.aborted) this.#ended.resolve(null)
    const close = (): void => this.#ended.resolve(null)
    closing.addEventListener('abort', close, { once: true })
    // The signal outlives the engine, and a listener would keep the engine in memory.
    void this.ended.then(() => closing.removeEventListener('abort', close))
    engine.lost().then(
      (reason) => this.markLost(reason),
      (error: unknown) => this.markLost(messageOf(error)),
    )
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const { promise: abandoned, reject } = Promise.withResolvers<never>()
    this.#batchRejects.add(reject)
    try {
      await Promise.race([this.engine.generate(requests, listener), abandoned])
    } catch (error) {
      if (toInferenceCode(error) === 'engine_lost') this.markLost(messageOf(error))
      throw error
    } finally {
      this.#batchRejects.delete(reject)
    }
  }

  markLost(reason: string): void {
    this.#ended.resolve(reason)
  }

  rejectBatches(error: Error): void {
    for (const reject of this.#batchRejects) reject(error)
  }
}
