/** Collects requests into batches for workers. The only place that ends requests. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { AbortRegistry } from '../../runtime/abort-registry.ts'
import { Deadlines, DeadlineTimer } from '../../runtime/deadlines.ts'
import {
  AttachedWorker,
  type BatchPolicy,
  type BatchWorker,
  decideBatch,
  type QueueState,
} from './batch-policy.ts'
import { type BatchFailure, type BatchOwner, type BatchReport, BatchRun } from './batch-run.ts'
import type { GenerationEnd, GenerationRequest } from './inference-engine.ts'
import {
  toContractErrorEnd,
  toEngineErrorEnd,
  toFailedEnd,
  toInferenceCode,
  toTimeoutEnd,
} from './inference-errors.ts'
import { ActiveClients, type EnqueueOptions, QueuedRequest, RequestQueue } from './request-queue.ts'

export interface BatcherParts {
  readonly clock: Clock
  readonly policy: BatchPolicy
  /** The maximum number of queued requests whose `isBounded` is `true`. */
  readonly queueLimit: number
  /** Called once per batch, when the last request of the batch has ended. */
  readonly onBatchEnded: (report: BatchReport) => void
  /** How long an engine may be silent about a request. Must be above 0. */
  readonly engineTimeoutMs: number
}

/** Every accepted request ends exactly once. A failed batch or a lost engine allows one retry. */
export class Batcher {
  readonly #parts: BatcherParts
  readonly #clock: Clock
  readonly #queue = new RequestQueue()
  readonly #aborts = new AbortRegistry<QueuedRequest>((request) => this.cancel(request))
  readonly #deadlines: Deadlines<QueuedRequest>
  readonly #batchTimer: DeadlineTimer
  readonly #workers = new Map<string, AttachedWorker>()
  readonly #openRequests = new Map<string, QueuedRequest>()
  readonly #clients = new ActiveClients()
  readonly #batchOwner: BatchOwner
  #drained: PromiseWithResolvers<void> | null = null
  /** The outcome of all requests once no worker can start any more; `null` before that. */
  #permanentFailure: GenerationEnd | null = null
  /** The outcome of bounded requests while no worker is able to start; `null` otherwise. */
  #outageEnd: GenerationEnd | null = null
  /** The number of requests in engines, including aborted ones that have not ended there yet. */
  running = 0
  breaches = 0
  #arrivalCount = 0
  #isDispatchDue = false

  constructor(parts: BatcherParts) {
    this.#parts = parts
    this.#clock = parts.clock
    this.#deadlines = new Deadlines(parts.clock, (request) => this.#onDeadline(request))
    this.#batchTimer = new DeadlineTimer(parts.clock, () => this.#dispatch())
    this.#batchOwner = {
      ended: (request, run, end) => {
        this.#release(request, run.worker)
        this.#endRequest(request, end)
      },
      unanswered: (request, run, failure) => {
        this.#release(request, run.worker)
        if (!request.hasEnded) this.#retryOrFail(request, run.size, failure)
      },
      breached: () => this.breaches++,
      finished: (report) => parts.onBatchEnded(report),
    }
  }

  get queued(): number {
    return this.#queue.size + this.#queue.heldCount
  }

  oldestWaitMs(): number {
    const oldest = this.#queue.peekOldest()
    return oldest === undefined ? 0 : this.#clock.monotonicMs() - oldest.arrivedMs
  }

  /** A request that cannot be accepted ends immediately. */
  enqueue(options: EnqueueOptions): void {
    const queued = this.#accept(options)
    if (queued !== null) this.#enqueue(queued)
  }

  /** Accepts a request but holds it back until `release`. Returns `null` if it is refused. */
  enqueueHeld(options: EnqueueOptions): QueuedRequest | null {
    const queued = this.#accept(options)
    if (queued === null) return null
    this.#queue.addHeld(queued)
    this.#deadlines.set(queued, queued.expiresMs)
    return queued
  }

  /** Queues a held request for the engines. Has no effect if the request has ended. */
  release(queued: QueuedRequest, request: GenerationRequest): void {
    if (queued.hasEnded) return
    this.#queue.remove(queued)
    queued.request = request
    this.#enqueue(queued)
  }

  /** Cancels a request. Has no effect if the request has ended. */
  cancel(request: QueuedRequest): void {
    this.#endEarly(request, canceled)
  }

  #accept(options: EnqueueOptions): QueuedRequest | null {
    const { id, signal } = options.request
    if (this.#openRequests.has(id)) throw new StateError(`request ${id} is already in the batcher`)
    const refusal = signal.aborted ? canceled : this.#findRefusal(options)
    if (refusal !== null) {
      options.listener.end(refusal)
      return null
    }
    const nowMs = this.#clock.monotonicMs()
    const queued = new QueuedRequest(options, this.#arrivalCount++, nowMs, this.#aborts)
    this.#openRequests.set(id, queued)
    this.#clients.add(queued.client)
    this.#clients.saw(queued.client, nowMs)
    return queued
  }

  #findRefusal({ isBounded, timeoutMs }: EnqueueOptions): GenerationEnd | null {
    if (this.#drained !== null) return toFailedEnd('closing', 'the backend is closing')
    if (this.#permanentFailure !== null) return this.#permanentFailure
    if (isBounded && this.#outageEnd !== null) return this.#outageEnd
    const { boundedCount } = this.#queue
    if (isBounded && boundedCount >= this.#parts.queueLimit) {
      const waiting = boundedCount === 1 ? '1 request is' : `${boundedCount} requests are`
      return toFailedEnd('queue_full', `the queue is full: ${waiting} waiting`)
    }
    return timeoutMs !== null && timeoutMs <= 0 ? toTimeoutEnd(timeoutMs) : null
  }

  addWorker(worker: BatchWorker): void {
    const { workerId } = worker
    if (this.#workers.has(workerId))
      throw new StateError(`worker ${workerId} is already in the batcher`)
    this.#workers.set(workerId, new AttachedWorker(worker))
    this.#outageEnd = null
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

  /** Resolves when all requests have ended. Aborting `signal` cancels the remaining ones. */
  drain(signal: AbortSignal): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    const cancelAll = (): void => {
      for (const request of this.#openRequests.values()) this.cancel(request)
    }
    if (signal.aborted) cancelAll()
    else signal.addEventListener('abort', cancelAll, { once: true })
    if (this.#openRequests.size === 0) this.#drained.resolve()
    this.#dispatchSoon()
    return this.#drained.promise.finally(() => signal.removeEventListener('abort', cancelAll))
  }

  /** Called while no worker is able to start. Bounded requests end, others wait. */
  suspend(reason: string): void {
    this.#outageEnd = toFailedEnd('not_ready', reason)
    for (const request of this.#openRequests.values()) {
      const isWaiting = request.engineAbort === null && request.options.isBounded
      if (isWaiting) this.#endEarly(request, this.#outageEnd)
    }
  }

  /** Called when no worker can ever start again. Ends all requests, and all that arrive later. */
  giveUp(reason: string): void {
    this.#permanentFailure = toFailedEnd('engine_lost', reason)
    for (const request of this.#openRequests.values())
      this.#endEarly(request, this.#permanentFailure)
  }

  #enqueue(request: QueuedRequest): void {
    this.#queue.add(request, this.#clients.count(request.client) === 1)
    this.#deadlines.set(request, request.expiresMs)
    this.#dispatchSoon()
  }

  /**
   * Waits for the end of the event loop's turn, so that all requests of the turn may share a batch.
   */
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
      const next = this.#queue.peek()
      const nowMs = this.#clock.monotonicMs()
      const queue = {
        queued: this.#queue.size,
        oldestArrivalMs: this.#queue.peekOldest()?.arrivedMs ?? 0,
        nowMs,
        isUrgent: next?.isRetry === true || this.#drained !== null,
        keepsSlot: this.#drained === null && this.#clients.areSeveral(nowMs),
      }
      const decision = decideBatch(this.#parts.policy, queue, this.#workers.values())
      if (decision.kind === 'send') {
        this.#send(decision.worker, this.#queue.dequeue(decision.size))
      } else if (!(decision.kind === 'idle' && queue.keepsSlot && this.#sendLone(queue))) {
        return this.#batchTimer.set(decision.kind === 'wait' ? decision.untilMs : Infinity)
      }
    }
  }

  /** Gives the slot that stays free to a client that has no other request. */
  #sendLone(queue: QueueState): boolean {
    const lone = this.#queue.peekLone()
    if (lone === undefined) return false
    const alone = { ...queue, queued: 1, keepsSlot: false }
    const decision = decideBatch(this.#parts.policy, alone, this.#workers.values())
    if (decision.kind !== 'send') return false
    this.#queue.take(lone)
    this.#send(decision.worker, [lone])
    return true
  }

  #send(worker: AttachedWorker, taken: readonly QueuedRequest[]): void {
    const nowMs = this.#clock.monotonicMs()
    for (const request of taken) {
      this.#clients.saw(request.client, nowMs)
      request.start(worker.worker)
    }
    // The listener may have canceled the request when `started` was called.
    const requests = taken.filter(({ hasEnded }) => !hasEnded)
    if (requests.length === 0) return
    worker.running += requests.length
    this.running += requests.length
    const run = new BatchRun(worker, requests, this.#clock, this.#batchOwner)
    for (const request of requests)
      this.#deadlines.set(request, request.lastActiveMs + this.#parts.engineTimeoutMs)
    void run.begin()
  }

  #endEarly(request: QueuedRequest, end: GenerationEnd): void {
    this.#queue.remove(request)
    if (this.#queue.size === 0) this.#batchTimer.set(Infinity)
    this.#endRequest(request, end)
    if (request.engineAbort === null) return
    this.#deadlines.set(request, this.#clock.monotonicMs() + this.#parts.engineTimeoutMs)
    request.engineAbort.abort()
  }

  #endRequest(request: QueuedRequest, end: GenerationEnd): void {
    if (request.hasEnded) return
    this.#openRequests.delete(request.id)
    this.#clients.remove(request.client)
    this.#deadlines.remove(request)
    request.end(end)
    if (this.#openRequests.size === 0) this.#drained?.resolve()
  }

  #release(request: QueuedRequest, worker: AttachedWorker): void {
    request.engineAbort = null
    this.#deadlines.remove(request)
    this.running--
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
    if (failure === null)
      return this.#endRequest(request, toContractErrorEnd('left a request unanswered'))
    const code = toInferenceCode(failure.cause)
    const mayRetry = code !== 'closing' && request.claimRetry(code === 'engine_lost', batchSize)
    if (mayRetry) this.#enqueue(request)
    else this.#endRequest(request, toEngineErrorEnd(failure.cause))
  }

  #onDeadline(request: QueuedRequest): void {
    const nowMs = this.#clock.monotonicMs()
    const timeoutMs = this.#parts.engineTimeoutMs
    if (request.hasEnded) {
      const reason = `an aborted request had not ended after ${timeoutMs / 1000} s`
      request.worker?.worker.markLost?.(reason)
    } else if (nowMs >= request.expiresMs) {
      this.#endEarly(request, toTimeoutEnd(request.options.timeoutMs ?? 0))
    } else {
      const activeMs = request.unreadDeltas > 0 ? nowMs : request.lastActiveMs
      const silentMs = request.engineAbort === null ? Infinity : activeMs + timeoutMs
      if (nowMs < silentMs)
        return this.#deadlines.set(request, Math.min(request.expiresMs, silentMs))
      const text = `the engine was silent for ${timeoutMs / 1000} s`
      this.#endEarly(request, toFailedEnd('engine_timeout', text))
    }
  }
}

const canceled: GenerationEnd = { kind: 'canceled' }
