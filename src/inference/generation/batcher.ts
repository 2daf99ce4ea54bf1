/** Collects requests into batches for workers. The only place that ends requests. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { AbortRegistry } from '../../runtime/abort-registry.ts'
import { Deadlines, DeadlineTimer } from '../../runtime/deadlines.ts'
import { AttachedWorker, type BatchPolicy, type BatchWorker, decideBatch } from './batch-policy.ts'
import { type BatchFailure, type BatchOwner, type BatchReport, BatchRun } from './batch-run.ts'
import type { GenerationEnd, GenerationRequest } from './inference-engine.ts'
import {
  contractBroken,
  engineFailed,
  failed,
  inferenceCodeOf,
  timedOut,
} from './inference-errors.ts'
import { type EnqueueOptions, QueuedRequest, RequestQueue } from './request-queue.ts'

export interface BatcherParts {
  readonly clock: Clock
  readonly policy: BatchPolicy
  /** The maximum number of queued requests, not counting unbounded ones. */
  readonly queueLimit: number
  /** Called once per batch, when the last request of the batch has ended. */
  readonly onBatch: (report: BatchReport) => void
  /** How long an engine may be silent about a request, above 0; `null` for no limit. */
  readonly engineTimeoutMs: number | null
}

/**
 * Every accepted request ends exactly once. Requests that arrive in one turn of the event loop are
 * considered together, so that requests of many connections share a batch. When a batch fails as a
 * whole, each of its requests is retried alone. Requests of a lost engine are retried once on
 * another engine, unless a client has already received text.
 */
export class Batcher {
  readonly #parts: BatcherParts
  readonly #clock: Clock
  readonly #engineTimeoutMs: number
  readonly #queue = new RequestQueue()
  readonly #aborts = new AbortRegistry<QueuedRequest>((request) => this.#cancel(request))
  readonly #deadlines: Deadlines<QueuedRequest>
  readonly #batchTimer: DeadlineTimer
  readonly #workers = new Map<string, AttachedWorker>()
  readonly #open = new Map<string, QueuedRequest>()
  readonly #batchOwner: BatchOwner
  #drained: PromiseWithResolvers<void> | null = null
  /** The outcome of all requests once no worker can start any more; `null` before. */
  #over: GenerationEnd | null = null
  /** The outcome of bounded requests while no worker is able to start; `null` otherwise. */
  #outage: GenerationEnd | null = null
  #running = 0
  #arrivals = 0
  #breaches = 0
  #isDispatchDue = false

  constructor(parts: BatcherParts) {
    this.#parts = parts
    this.#clock = parts.clock
    this.#engineTimeoutMs = parts.engineTimeoutMs ?? Infinity
    this.#deadlines = new Deadlines(parts.clock, (request) => this.#overdue(request))
    this.#batchTimer = new DeadlineTimer(parts.clock, () => this.#dispatch())
    this.#batchOwner = {
      ended: (request, run, end) => {
        this.#release(request, run.worker)
        this.#end(request, end)
      },
      unanswered: (request, run, failure) => {
        this.#release(request, run.worker)
        if (!request.hasEnded) this.#retryOrFail(request, run.size, failure)
      },
      breached: () => this.#breaches++,
      finished: (report) => parts.onBatch(report),
    }
  }

  /** The number of queued requests, including held ones. */
  get queued(): number {
    return this.#queue.size + this.#queue.held
  }

  /** The number of requests in engines, including aborted ones that have not ended there yet. */
  get running(): number {
    return this.#running
  }

  /** How often engines have violated their contract. */
  get breaches(): number {
    return this.#breaches
  }

  oldestWaitMs(): number {
    const oldest = this.#queue.oldest()
    return oldest === undefined ? 0 : this.#clock.monotonicMs() - oldest.sinceMs
  }

  /** Ends the request immediately with `queue_full` or `closing` if it cannot be accepted. */
  enqueue(options: EnqueueOptions): void {
    const queued = this.#accept(options)
    if (queued !== null) this.#enqueue(queued)
  }

  /**
   * Accepts a request that no engine may get before `release`. The request counts as queued, and
   * its time-out runs. Returns `null` if the request was not accepted and has ended.
   */
  hold(options: EnqueueOptions): QueuedRequest | null {
    const queued = this.#accept(options)
    if (queued === null) return null
    this.#queue.hold(queued)
    this.#deadlines.set(queued, queued.dueMs)
    return queued
  }

  /** Queues a held request for the engines. Has no effect if the request has ended. */
  release(queued: QueuedRequest, request: GenerationRequest): void {
    if (queued.hasEnded) return
    this.#queue.remove(queued)
    queued.request = request
    this.#enqueue(queued)
  }

  /** Cancels a held request. Has no effect if the request has ended. */
  withdraw(queued: QueuedRequest): void {
    this.#cancel(queued)
  }

  #accept(options: EnqueueOptions): QueuedRequest | null {
    const { id, signal } = options.request
    if (this.#open.has(id)) throw new StateError(`request ${id} is already in the batcher`)
    const refusal = signal.aborted ? canceled : this.#refusal(options)
    if (refusal !== null) {
      options.listener.end(refusal)
      return null
    }
    const nowMs = this.#clock.monotonicMs()
    const queued = new QueuedRequest(options, this.#arrivals++, nowMs, this.#aborts)
    this.#open.set(id, queued)
    return queued
  }

  #refusal({ isBounded, timeoutMs }: EnqueueOptions): GenerationEnd | null {
    if (this.#drained !== null) return failed('closing', 'the backend is closing')
    if (this.#over !== null) return this.#over
    if (isBounded && this.#outage !== null) return this.#outage
    const { bounded } = this.#queue
    if (isBounded && bounded >= this.#parts.queueLimit) {
      const waiting = bounded === 1 ? '1 request is' : `${bounded} requests are`
      return failed('queue_full', `the queue is full: ${waiting} waiting`)
    }
    return timeoutMs !== null && timeoutMs <= 0 ? timedOut(timeoutMs) : null
  }

  addWorker(worker: BatchWorker): void {
    const { workerId } = worker
    if (this.#workers.has(workerId))
      throw new StateError(`worker ${workerId} is already in the batcher`)
    this.#workers.set(workerId, new AttachedWorker(worker))
    this.#outage = null
    this.#dispatchSoon()
  }

  /** Sends the worker no more requests; resolves when its running requests have ended. */
  removeWorker(workerId: string): Promise<void> {
    const worker = this.#workers.get(workerId)
    if (worker === undefined) return Promise.resolve()
    worker.isDraining = true
    this.#removeIfIdle(worker)
    return worker.removed.promise
  }

  /**
   * Rejects new requests, and resolves when all accepted requests have ended. Aborting `signal`
   * cancels the remaining requests.
   */
  drain(signal: AbortSignal): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    const cancelAll = (): void => {
      for (const request of this.#open.values()) this.#cancel(request)
    }
    if (signal.aborted) cancelAll()
    else signal.addEventListener('abort', cancelAll, { once: true })
    if (this.#open.size === 0) this.#drained.resolve()
    this.#dispatchSoon()
    return this.#drained.promise.finally(() => signal.removeEventListener('abort', cancelAll))
  }

  /**
   * Call when no worker is able to start for now. Until a worker is added, queued and new bounded
   * requests end with `not_ready`. Unbounded requests, such as those of tasks, wait.
   */
  suspend(reason: string): void {
    this.#outage = failed('not_ready', reason)
    for (const request of this.#open.values()) {
      const isWaiting = request.inEngine === null && request.options.isBounded
      if (isWaiting) this.#stop(request, this.#outage)
    }
  }

  /** No worker can start any more: all current and later requests end with `engine_lost`. */
  giveUp(reason: string): void {
    this.#over = failed('engine_lost', reason)
    for (const request of this.#open.values()) this.#stop(request, this.#over)
  }

  #enqueue(request: QueuedRequest): void {
    this.#queue.add(request)
    this.#deadlines.set(request, request.dueMs)
    this.#dispatchSoon()
  }

  /** Dispatches once per turn of the event loop: all requests of a turn may share a batch. */
  #dispatchSoon(): void {
    if (this.#isDispatchDue) return
    this.#isDispatchDue = true
    this.#clock.nextTurn(() => {
      this.#isDispatchDue = false
      this.#dispatch()
    })
  }

  #dispatch(): void {
    for (;;) {
      const next = this.#queue.next()
      const queue = {
        queued: this.#queue.size,
        oldestMs: this.#queue.oldest()?.sinceMs ?? 0,
        nowMs: this.#clock.monotonicMs(),
        isUrgent: next?.isRetry === true || this.#drained !== null,
      }
      const decision = decideBatch(this.#parts.policy, queue, this.#workers.values())
      if (decision.kind !== 'send') {
        return this.#batchTimer.set(decision.kind === 'wait' ? decision.untilMs : Infinity)
      }
      this.#send(decision.to, this.#queue.take(decision.size))
    }
  }

  #send(worker: AttachedWorker, taken: readonly QueuedRequest[]): void {
    for (const request of taken) request.start(worker.worker)
    // The listener may have canceled the request when `started` was called.
    const requests = taken.filter(({ hasEnded }) => !hasEnded)
    if (requests.length === 0) return
    worker.running += requests.length
    this.#running += requests.length
    const run = new BatchRun(worker, requests, this.#clock, this.#batchOwner)
    for (const request of requests)
      this.#deadlines.set(request, request.activeMs + this.#engineTimeoutMs)
    void run.begin()
  }

  #cancel(request: QueuedRequest): void {
    this.#stop(request, canceled)
  }

  /** Ends a request before its engine does, and aborts it in the engine. */
  #stop(request: QueuedRequest, end: GenerationEnd): void {
    this.#queue.remove(request)
    if (this.#queue.size === 0) this.#batchTimer.set(Infinity)
    this.#end(request, end)
    if (request.inEngine === null) return
    this.#deadlines.set(request, this.#clock.monotonicMs() + this.#engineTimeoutMs)
    request.inEngine.abort()
  }

  #end(request: QueuedRequest, end: GenerationEnd): void {
    if (request.hasEnded) return
    this.#open.delete(request.id)
    this.#deadlines.remove(request)
    request.end(end)
    if (this.#open.size === 0) this.#drained?.resolve()
  }

  #release(request: QueuedRequest, worker: AttachedWorker): void {
    request.inEngine = null
    this.#deadlines.remove(request)
    this.#running--
    worker.running--
    this.#removeIfIdle(worker)
    if (this.#queue.size > 0) this.#dispatchSoon()
  }

  #removeIfIdle(worker: AttachedWorker): void {
    if (!worker.isDraining || worker.running > 0) return
    this.#workers.delete(worker.worker.workerId)
    worker.removed.resolve()
  }

  #retryOrFail(request: QueuedRequest, batchSize: number, failure: BatchFailure): void {
    if (failure === null) return this.#end(request, contractBroken('left a request unanswered'))
    const code = inferenceCodeOf(failure.cause)
    const mayRetry = code !== 'closing' && request.claimRetry(code === 'engine_lost', batchSize)
    if (mayRetry) this.#enqueue(request)
    else this.#end(request, engineFailed(failure.cause))
  }

  #overdue(request: QueuedRequest): void {
    const nowMs = this.#clock.monotonicMs()
    const timeoutMs = this.#engineTimeoutMs
    if (request.hasEnded) {
      const reason = `an aborted request had not ended after ${timeoutMs / 1000} s`
      request.worker?.worker.giveUp?.(reason)
    } else if (nowMs >= request.dueMs) {
      this.#stop(request, timedOut(request.options.timeoutMs ?? 0))
    } else {
      const activeMs = request.heldBack > 0 ? nowMs : request.activeMs
      const silentMs = request.inEngine === null ? Infinity : activeMs + timeoutMs
      if (nowMs < silentMs) return this.#deadlines.set(request, Math.min(request.dueMs, silentMs))
      const text = `the engine was silent for ${timeoutMs / 1000} s`
      this.#stop(request, failed('engine_timeout', text))
    }
  }
}

const canceled: GenerationEnd = { kind: 'canceled' }
