/** One worker of the pool: starts its engine, watches it, and starts it anew when it is lost. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { BackOff } from '../../runtime/back-off.ts'
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
  /** It did not start, and is tried again after a pause. */
  readonly onStartFailed: (text: string, error: unknown) => void
  readonly onLost: (notice: { readonly workerId: string; readonly reason: string }) => void
}

const maxDelayMs = 30_000

/** While it serves, the batcher has it. A restarted one keeps its name. */
export class SupervisedWorker {
  readonly #worker: EngineWorker
  readonly #parts: WorkerParts
  readonly #closing = new AbortController()
  readonly #firstStart = Promise.withResolvers<void>()
  readonly #life: Promise<void>
  #serving: ServingEngine | null = null
  #isRetiring = false
  #trouble = 'is starting'
  #servesSinceMs = Infinity

  /** Begins at once. */
  constructor(worker: EngineWorker, parts: WorkerParts) {
    this.#worker = worker
    this.#parts = parts
    this.#firstStart.promise.catch(() => {})
    this.#life = this.#live()
  }

  /** Rejects when the first start fails, which does not keep it from trying again. */
  get firstStart(): Promise<void> {
    return this.#firstStart.promise
  }

  /** The engine that takes requests now. */
  get engine(): InferenceEngine | null {
    return this.#isRetiring ? null : (this.#serving?.engine ?? null)
  }

  get isRetiring(): boolean {
    return this.#isRetiring
  }

  /** Why it does not serve. */
  get trouble(): string {
    return `${this.#worker.workerId} ${this.#trouble}`
  }

  /** Takes no more requests, lets those that it has end, and closes. */
  async retire(): Promise<void> {
    this.#isRetiring = true
    await this.#parts.batcher.removeWorker(this.#worker.workerId)
    await this.close()
  }

  /** Closes its engine, whatever it does. Complete when it resolves. */
  close(): Promise<void> {
    this.#closing.abort(inferenceError('closing', 'the engine is being closed'))
    return this.#life
  }

  async #live(): Promise<void> {
    const { clock } = this.#parts
    const backOff = new BackOff({ firstDelayMs: 500, maxDelayMs })
    while (!this.#isOver) {
      this.#servesSinceMs = Infinity
      const reason = await this.#serveOnce()
      if (this.#isOver) return
      this.#trouble = reason
      // One that has worked for a while is not one that keeps failing.
      if (clock.monotonicMs() - this.#servesSinceMs >= maxDelayMs) backOff.reset()
      const delayMs = backOff.fail(clock.monotonicMs())
      await sleep(clock, delayMs, { signal: this.#closing.signal }).catch(() => {})
    }
  }

  get #isOver(): boolean {
    return this.#isRetiring || this.#closing.signal.aborted
  }

  /** One engine's life, from its making to its close; resolves with why it serves no longer. */
  async #serveOnce(): Promise<string> {
    const { createEngine, batcher, onStartFailed } = this.#parts
    const { workerId } = this.#worker
    let engine: InferenceEngine | null = null
    let service: ServingEngine | null = null
    try {
      engine = createEngine(this.#worker)
      const facts = await unlessAborted(this.#closing.signal, engine.start())
      service = new ServingEngine(workerId, engine, this.#closing.signal)
      return await this.#serve(service, facts)
    } catch (error) {
      this.#firstStart.reject(error)
      const reason = `did not start: ${messageOf(error)}`
      if (!this.#isOver) onStartFailed(`${workerId} ${reason}`, error)
      return reason
    } finally {
      await this.#closeEngine(engine)
      service?.abandon(inferenceError('closing', `${workerId} was closed`))
      await batcher.removeWorker(workerId)
    }
  }

  async #serve(service: ServingEngine, facts: ModelFacts): Promise<string> {
    const { batcher, clock, onServing, onLost } = this.#parts
    const { workerId } = service
    this.#serving = service
    this.#servesSinceMs = clock.monotonicMs()
    batcher.addWorker(service)
    onServing(facts)
    this.#firstStart.resolve()
    const loss = await service.over
    this.#serving = null
    const left = batcher.removeWorker(workerId)
    if (loss === null) return 'was closed'
    service.abandon(inferenceError('engine_lost', `${workerId} was lost: ${loss}`))
    onLost({ workerId, reason: loss })
    // Closed earlier, the engine would end the requests that can still move.
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

/** A started engine as the batcher sees it, until it is lost or closed. */
class ServingEngine {
  readonly workerId: string
  readonly engine: InferenceEngine
  readonly capacity: InferenceEngine['capacity']
  /** Resolves with the reason of its loss, or with `null` when it is to be closed. */
  readonly over: Promise<string | null>
  readonly #over = Promise.withResolvers<string | null>()
  readonly #batches = new Set<(error: Error) => void>()

  constructor(workerId: string, engine: InferenceEngine, closing: AbortSignal) {
    this.workerId = workerId
    this.engine = engine
    this.capacity = engine.capacity
    this.over = this.#over.promise
    if (closing.aborted) this.#over.resolve(null)
    const close = (): void => this.#over.resolve(null)
    closing.addEventListener('abort', close, { once: true })
    // The signal lives as long as the worker: it must not keep every engine that was lost.
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

  /** Ends its batches without the engine. */
  abandon(error: Error): void {
    for (const reject of this.#batches) reject(error)
  }
}
