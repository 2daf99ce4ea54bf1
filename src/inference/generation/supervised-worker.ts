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
import { inferenceCodeOf, inferenceError } from './inference-errors.ts'

export interface WorkerParts {
  readonly createEngine: CreateEngine
  readonly batcher: Batcher
  readonly clock: Clock
  readonly log: Log
  readonly onServing: (facts: ModelFacts) => void
  /** Called when the engine failed to start. The worker retries after a delay. */
  readonly onStartFailed: (text: string, error: unknown) => void
  readonly onLost: (notice: { readonly workerId: string; readonly reason: string }) => void
}

const restartPolicy = { firstDelayMs: 500, maxDelayMs: 30_000, steadyMs: 30_000 }

/**
 * The worker is attached to the batcher while its engine serves. A restart does not change its id.
 */
export class SupervisedWorker {
  readonly #worker: EngineWorker
  readonly #parts: WorkerParts
  readonly #closing = new AbortController()
  readonly #firstStart = Promise.withResolvers<void>()
  readonly #lifetime: Promise<void>
  #serving: ServingEngine | null = null
  #isRetiring = false
  #problem = 'is starting'
  #isFailing = false

  /** Starts the worker's engine immediately. */
  constructor(worker: EngineWorker, parts: WorkerParts) {
    this.#worker = worker
    this.#parts = parts
    this.#firstStart.promise.catch(() => {})
    this.#lifetime = this.#runUntilClosed()
  }

  /** The outcome of the first start. If it fails, this rejects, and the worker retries. */
  get firstStart(): Promise<void> {
    return this.#firstStart.promise
  }

  /** The worker's engine if it accepts requests now; otherwise `null`. */
  get engine(): InferenceEngine | null {
    return this.#isRetiring ? null : (this.#serving?.engine ?? null)
  }

  get isRetiring(): boolean {
    return this.#isRetiring
  }

  /** A human-readable reason why the serving engine seems not to work; `null` if it works. */
  get engineProblem(): string | null {
    const problem = this.#serving?.engine.problem?.() ?? null
    return problem === null ? null : `${this.#worker.workerId} ${problem}`
  }

  /** A human-readable reason why the worker does not serve. */
  get problem(): string {
    return `${this.#worker.workerId} ${this.#problem}`
  }

  /** Whether the last attempt to start the engine failed. */
  get isFailing(): boolean {
    return this.#isFailing
  }

  /** Sends the worker no more requests, and closes it when its requests have ended. */
  async retire(): Promise<void> {
    this.#isRetiring = true
    await this.#parts.batcher.removeWorker(this.#worker.workerId)
    await this.close()
  }

  /** Closes the worker's engine immediately; resolves when it is closed. */
  close(): Promise<void> {
    this.#closing.abort(inferenceError('closing', 'the engine is being closed'))
    return this.#lifetime
  }

  async #runUntilClosed(): Promise<void> {
    const { clock } = this.#parts
    const { signal } = this.#closing
    const run = async (current: SupervisedRun): Promise<string> =>
      (this.#problem = await this.#serveOnce(current))
    await supervise(restartPolicy, run, { clock, signal })
  }

  get #isOver(): boolean {
    return this.#isRetiring || this.#closing.signal.aborted
  }

  /** Creates, starts, serves and closes one engine; resolves with the reason why serving ended. */
  async #serveOnce(run: SupervisedRun): Promise<string> {
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
      this.#isFailing = true
      if (!this.#isOver) onStartFailed(`${workerId} ${reason}`, error)
      return reason
    } finally {
      await this.#closeEngine(engine)
      serving?.abandon(inferenceError('closing', `${workerId} was closed`))
      await batcher.removeWorker(workerId)
    }
  }

  async #serve(serving: ServingEngine, facts: ModelFacts): Promise<string> {
    const { batcher, onServing, onLost } = this.#parts
    const { workerId } = serving
    this.#serving = serving
    this.#isFailing = false
    batcher.addWorker(serving)
    onServing(facts)
    this.#firstStart.resolve()
    const loss = await serving.over
    this.#serving = null
    const left = batcher.removeWorker(workerId)
    if (loss === null) return 'was closed'
    serving.abandon(inferenceError('engine_lost', `${workerId} was lost: ${loss}`))
    onLost({ workerId, reason: loss })
    // Closing the engine earlier would end requests that can be retried on another engine.
    await left
    return `was lost: ${loss}`
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

/** A started engine as a worker of the batcher, until the engine is lost or closed. */
class ServingEngine {
  readonly workerId: string
  readonly engine: InferenceEngine
  readonly capacity: InferenceEngine['capacity']
  readonly nodeId: string | undefined
  /** Resolves with the reason of the loss, or with `null` when the worker is closed. */
  readonly over: Promise<string | null>
  readonly #over = Promise.withResolvers<string | null>()
  readonly #batches = new Set<(error: Error) => void>()

  constructor(workerId: string, engine: InferenceEngine, closing: AbortSignal) {
    this.workerId = workerId
    this.engine = engine
    this.capacity = engine.capacity
    this.nodeId = engine.nodeId
    this.over = this.#over.promise
    if (closing.aborted) this.#over.resolve(null)
    const close = (): void => this.#over.resolve(null)
    closing.addEventListener('abort', close, { once: true })
    // The signal outlives the engine, so its listener would retain a lost engine.
    void this.over.then(() => closing.removeEventListener('abort', close))
    engine.lost().then(
      (reason) => this.giveUp(reason),
      (error: unknown) => this.giveUp(messageOf(error)),
    )
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const { promise: abandoned, reject } = Promise.withResolvers<never>()
    this.#batches.add(reject)
    try {
      await Promise.race([this.engine.generate(requests, listener), abandoned])
    } catch (error) {
      if (inferenceCodeOf(error) === 'engine_lost') this.giveUp(messageOf(error))
      throw error
    } finally {
      this.#batches.delete(reject)
    }
  }

  giveUp(reason: string): void {
    this.#over.resolve(reason)
  }

  /** Rejects the running `generate` calls without waiting for the engine. */
  abandon(error: Error): void {
    for (const reject of this.#batches) reject(error)
  }
}
