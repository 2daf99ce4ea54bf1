/** Loads and unloads the models of a server, as its `ModelSchedule` decides. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { DeadlineTimer } from '../../runtime/deadlines.ts'
import type { InferenceConfig } from '../config/inference-config.ts'
import type { PromptTokens } from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import type { PassThroughInput } from '../generation/pass-through.ts'
import type {
  GenerationResult,
  GeneratorStatus,
  ProgressListener,
  PromptRequest,
  TextGenerator,
} from '../generation/text-generator.ts'
import { ModelSchedule, type ScheduledModel, type ScheduleInstruction } from './model-schedule.ts'

/** What the pool needs of a loaded model. */
export interface PooledModel {
  readonly generator: TextGenerator
  /** Resolves when the model serves. */
  start(): Promise<void>
  /** Rejects new requests; resolves when all have ended. Aborting `signal` cancels them. */
  drain(signal: AbortSignal): Promise<void>
  /** Stops the engines, even while they start. */
  stop(): Promise<void>
}

/** A model of the pool. Its name in the schedule is its first name. */
export interface PoolModel<Instance extends PooledModel> {
  readonly config: InferenceConfig
  readonly isPreloaded: boolean
  readonly scheduled: ScheduledModel
  readonly create: () => Instance
}

export interface ModelPoolParts<Instance extends PooledModel> {
  /** The first is the default. */
  readonly models: readonly PoolModel<Instance>[]
  readonly budgetBytes: number
  /** The maximum number of requests that wait for models. */
  readonly queueLimit: number
  readonly clock: Clock
  readonly log: Log
}

/** A loaded model. It stays loaded until `release` is called. */
export interface ModelLease<Instance> {
  readonly instance: Instance
  release(): void
}

export interface AcquireOptions {
  readonly signal: AbortSignal
  /** How long to wait for the model; `null` for no limit. */
  readonly timeoutMs: number | null
  /** Whether a full queue rejects the request. */
  readonly isBounded: boolean
}

interface Waiter<Instance> {
  readonly begin: (lease: ModelLease<Instance>) => void
  readonly refuse: (error: unknown) => void
}

export class ModelPool<Instance extends PooledModel> implements TextGenerator {
  readonly #parts: ModelPoolParts<Instance>
  readonly #schedule: ModelSchedule
  readonly #models: ReadonlyMap<string, PoolModel<Instance>>
  readonly #instances = new Map<string, Instance>()
  readonly #waiters = new Map<string, Waiter<Instance>>()
  readonly #loadErrors = new Map<string, unknown>()
  readonly #timer: DeadlineTimer
  #requestCount = 0
  #isClosing = false

  constructor(parts: ModelPoolParts<Instance>) {
    this.#parts = parts
    const { models, budgetBytes, clock } = parts
    this.#models = new Map(models.map((model) => [model.scheduled.name, model]))
    this.#schedule = new ModelSchedule(
      models.map(({ scheduled }) => scheduled),
      budgetBytes,
    )
    this.#timer = new DeadlineTimer(clock, () => {
      this.#follow(this.#schedule.advance(clock.monotonicMs()))
    })
  }

  get models(): readonly PoolModel<Instance>[] {
    return this.#parts.models
  }

  get generator(): TextGenerator {
    return this
  }

  /** Returns the instance of a model; `null` if the model is not loaded. */
  getInstance(model: string): Instance | null {
    return this.#schedule.isLoaded(model) ? (this.#instances.get(model) ?? null) : null
  }

  /** In how many milliseconds the model is unloaded; `Infinity` if it stays or is in use. */
  leftMs(model: string): number {
    return this.#schedule.expiresMs(model) - this.#parts.clock.monotonicMs()
  }

  /**
   * Finds a model by one of its names, or by the name in its configuration. Without a name, returns
   * the first model.
   */
  find(name: string | null | undefined): PoolModel<Instance> | undefined {
    const { models } = this.#parts
    if (name === null || name === undefined) return models[0]
    return models.find(
      ({ config }) => config.servedNames.includes(name) || config.modelName === name,
    )
  }

  /**
   * Returns the model immediately if it is loaded and need not give way to another one; otherwise,
   * returns a promise.
   */
  acquire(
    { scheduled }: PoolModel<Instance>,
    { signal, timeoutMs, isBounded }: AcquireOptions,
  ): ModelLease<Instance> | Promise<ModelLease<Instance>> {
    const { clock, queueLimit } = this.#parts
    const refusal = this.#findRefusal(signal, isBounded && this.#waiters.size >= queueLimit)
    if (refusal !== null) return Promise.reject(refusal)
    const request = String(this.#requestCount++)
    const { promise, resolve, reject } = Promise.withResolvers<ModelLease<Instance>>()
    let begun: ModelLease<Instance> | null = null
    let stopWaiting = (): void => {}
    const settle = (): void => {
      this.#waiters.delete(request)
      stopWaiting()
    }
    this.#waiters.set(request, {
      begin(lease) {
        begun = lease
        settle()
        resolve(lease)
      },
      refuse(error) {
        settle()
        reject(error)
      },
    })
    promise.catch(() => {})
    this.#follow(this.#schedule.request(request, scheduled.name, clock.monotonicMs()))
    if (begun !== null) return begun
    if (!this.#waiters.has(request)) return promise
    const cancel = (error: unknown): void => {
      this.#waiters.get(request)?.refuse(error)
      this.#follow(this.#schedule.cancel(request, clock.monotonicMs()))
    }
    const onAbort = (): void => cancel(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const stopTimer =
      timeoutMs === null ? () => {} : clock.after(timeoutMs, () => cancel(timeoutError(timeoutMs)))
    stopWaiting = () => {
      signal.removeEventListener('abort', onAbort)
      stopTimer()
    }
    return promise
  }

  async generate(prompt: PromptRequest, listener?: ProgressListener): Promise<GenerationResult> {
    const { clock } = this.#parts
    const { signal, isBounded, timeoutSeconds } = prompt
    const startMs = clock.monotonicMs()
    const timeoutMs = timeoutSeconds === null ? null : timeoutSeconds * 1000
    const lease = await this.acquire(this.#expect(prompt.model), { signal, timeoutMs, isBounded })
    const waitedSeconds = (clock.monotonicMs() - startMs) / 1000
    const left = timeoutSeconds === null ? null : timeoutSeconds - waitedSeconds
    try {
      return await lease.instance.generator.generate({ ...prompt, timeoutSeconds: left }, listener)
    } finally {
      lease.release()
    }
  }

  tokenize(text: string): Promise<readonly number[]> {
    return this.#use((generator) => generator.tokenize(text))
  }

  detokenize(tokens: readonly number[]): Promise<string> {
    return this.#use((generator) => generator.detokenize(tokens))
  }

  readPrompt(input: PassThroughInput): Promise<PromptTokens> {
    return this.#use((generator) => generator.readPrompt(input))
  }

  /** A model that is not loaded does not make the pool unready. */
  status(): GeneratorStatus {
    const all = Array.from(this.#models.keys(), (name) => this.getInstance(name))
    const states = all.flatMap((one) => one?.generator.status() ?? [])
    const sum = (key: 'queued' | 'running' | 'workers'): number =>
      states.reduce((total, state) => total + state[key], 0)
    const reason = states.find(({ unreadyReason }) => unreadyReason !== null)?.unreadyReason
    return {
      queued: sum('queued') + this.#waiters.size,
      running: sum('running'),
      workers: sum('workers'),
      unreadyReason: reason ?? (this.#isClosing ? 'closed' : null),
    }
  }

  /** Loads the models in this order; rejects with the first error. */
  async preload(models: readonly PoolModel<Instance>[]): Promise<void> {
    const { signal } = new AbortController()
    for (const model of models) {
      const options = { signal, timeoutMs: null, isBounded: false }
      const lease = await this.acquire(model, options)
      lease.release()
    }
  }

  /** Rejects new requests, and cancels the requests that still run when `signal` is aborted. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#isClosing = true
    for (const { refuse } of this.#waiters.values()) refuse(closingError())
    await Promise.all(Array.from(this.#instances.values(), (one) => one.drain(signal)))
  }

  async stop(): Promise<void> {
    this.#isClosing = true
    this.#timer.set(Infinity)
    for (const { refuse } of this.#waiters.values()) refuse(closingError())
    await Promise.all(Array.from(this.#instances.values(), (one) => one.stop()))
  }

  #findRefusal(signal: AbortSignal, isFull: boolean): unknown {
    if (this.#isClosing) return closingError()
    if (signal.aborted) return signal.reason
    const count = this.#waiters.size
    return isFull
      ? inferenceError('queue_full', `the queue is full: ${count} requests wait for models`)
      : null
  }

  #expect(name: string | null | undefined): PoolModel<Instance> {
    const model = this.find(name)
    if (model !== undefined) return model
    throw inferenceError('unsupported', `the model "${name}" is not served`)
  }

  async #use<T>(call: (generator: TextGenerator) => Promise<T>): Promise<T> {
    const { signal } = new AbortController()
    const options = { signal, timeoutMs: null, isBounded: true }
    const lease = await this.acquire(this.#expect(null), options)
    try {
      return await call(lease.instance.generator)
    } finally {
      lease.release()
    }
  }

  #follow(instructions: readonly ScheduleInstruction[]): void {
    for (const instruction of instructions) {
      const { model } = instruction
      if (instruction.kind === 'begin') this.#begin(instruction.request, model)
      else if (instruction.kind === 'refuse')
        this.#refuse(instruction.request, model, instruction.reason)
      else if (instruction.kind === 'load') void this.#load(model)
      else void this.#unload(model)
    }
    if (!this.#isClosing) this.#timer.set(this.#schedule.nextDeadlineMs)
  }

  #begin(request: string, model: string): void {
    const instance = this.#instances.get(model)
    if (instance === undefined) throw new Error(`the model "${model}" is not loaded`)
    let isReleased = false
    const release = (): void => {
      if (isReleased) return
      isReleased = true
      this.#follow(this.#schedule.release(model, this.#parts.clock.monotonicMs()))
    }
    const waiter = this.#waiters.get(request)
    if (waiter === undefined) release()
    else waiter.begin({ instance, release })
  }

  #refuse(request: string, model: string, reason: string | null): void {
    const waiter = this.#waiters.get(request)
    if (reason === null) return waiter?.refuse(this.#loadErrors.get(model))
    return waiter?.refuse(inferenceError('model_too_large', reason))
  }

  async #load(name: string): Promise<void> {
    // The schedule still has the requests that were refused when the pool began to close.
    if (this.#isClosing) return
    const { clock } = this.#parts
    const instance = this.#models.get(name)?.create()
    if (instance === undefined) return
    this.#instances.set(name, instance)
    try {
      await instance.start()
      if (!this.#isClosing) this.#follow(this.#schedule.loaded(name, clock.monotonicMs()))
    } catch (error) {
      await this.#stop(name, instance)
      const message = `the model "${name}" did not load: ${messageOf(error)}`
      this.#loadErrors.set(name, inferenceError('not_ready', message, { cause: error }))
      this.#follow(this.#schedule.loadFailed(name, clock.monotonicMs()))
      this.#loadErrors.delete(name)
    }
  }

  async #unload(name: string): Promise<void> {
    const instance = this.#instances.get(name)
    if (instance !== undefined) await this.#stop(name, instance)
    this.#follow(this.#schedule.unloaded(name, this.#parts.clock.monotonicMs()))
  }

  async #stop(name: string, instance: Instance): Promise<void> {
    try {
      await instance.stop()
    } catch (error) {
      this.#parts.log.warn('EngineCloseFailed', `${name} did not close: ${messageOf(error)}`)
    }
    this.#instances.delete(name)
  }
}

const closingError = (): Error => inferenceError('closing', 'the backend is closing')

const timeoutError = (timeoutMs: number): Error =>
  inferenceError('request_timeout', `the model was not loaded within ${timeoutMs / 1000} s`)
