/**
 * The queue of requests that no engine has taken yet, and the state of each request in the batcher.
 */

import type { Clock } from '../../foundation/clock.ts'
import type { AbortRegistry } from '../../runtime/abort-registry.ts'
import type { HasDeadline } from '../../runtime/deadlines.ts'
import { PriorityQueue, type QueueEntry } from '../../runtime/priority-queue.ts'
import type { AttachedWorker, BatchWorker } from './batch-policy.ts'
import type { GenerationDelta, GenerationEnd, GenerationRequest } from './inference-engine.ts'

/** A request for the batcher. */
export interface EnqueueOptions {
  /** Aborting its `signal` removes the request from the queue, or aborts it in the engine. */
  readonly request: GenerationRequest
  /** Higher is served first. Within a priority, retries come first, then earlier arrivals. */
  readonly priority: number
  readonly isRetry?: boolean
  /** The time limit from now on, including the time in the queue; `null` for no limit. */
  readonly timeoutMs: number | null
  /**
   * Whether the request is rejected when the queue is full or no engine is able to start. Requests
   * of tasks wait instead, because their session limits their number.
   */
  readonly isBounded: boolean
  readonly listener: QueueListener
}

/** Receives what happens to one request. No call may throw. */
export interface QueueListener {
  /** An engine has begun with the request. Called at most once, before all other calls. */
  started(workerId: string, nodeId: string | undefined): void
  /** More text. The engine pauses this request until a returned promise settles. */
  delta(delta: GenerationDelta): Promise<void> | undefined
  /**
   * Called before a request that has produced text is retried. `true` discards the text; `false`,
   * because a client has read it, makes the request fail. Without this method, the request fails.
   */
  restart?(): boolean
  /** Called exactly once, after all other calls. */
  end(end: GenerationEnd): void
}

/** The state of one accepted request. Calls `started` at most once and `end` exactly once. */
export class QueuedRequest implements HasDeadline {
  readonly options: EnqueueOptions
  /** The request for engines. `Batcher.release` sets it again, with the checked input. */
  request: GenerationRequest
  /** The order of arrival. */
  readonly number: number
  readonly sinceMs: number
  /** When the request's own time-out expires. */
  readonly dueMs: number
  readonly #aborts: AbortRegistry<QueuedRequest>
  hasStarted = false
  /** Whether the listener has received text, so that a retry needs the listener's consent. */
  hasDelta = false
  /** Whether `listener.end` has been called. An engine may still work on the request. */
  hasEnded = false
  /** Whether the request's batch failed as a whole, so that it is retried in its own batch. */
  isAlone = false
  /** Whether the request was once in an engine that was lost. */
  wasLost = false
  /** Aborts the request in its engine; `null` while the request is in no engine. */
  inEngine: AbortController | null = null
  /** The current or latest worker of the request. */
  worker: AttachedWorker | null = null
  /** When the engine last reported something about the request. */
  activeMs = 0
  /** The number of deltas that the reader has not accepted yet. */
  heldBack = 0
  /** Whether no engine may get the request yet, although it counts as queued. */
  isHeld = false
  /** The request's entries in the two orders of `RequestQueue`. */
  turn: QueueEntry | null = null
  age: QueueEntry | null = null
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null

  /** Listens to the request's signal through `aborts` until the request ends. */
  constructor(
    options: EnqueueOptions,
    number: number,
    sinceMs: number,
    aborts: AbortRegistry<QueuedRequest>,
  ) {
    this.options = options
    this.request = options.request
    this.number = number
    this.sinceMs = sinceMs
    this.dueMs = options.timeoutMs === null ? Infinity : sinceMs + options.timeoutMs
    this.#aborts = aborts
    aborts.watch(options.request.signal, this)
  }

  get id(): string {
    return this.options.request.id
  }

  start({ workerId, nodeId }: BatchWorker): void {
    if (this.hasStarted) return
    this.hasStarted = true
    this.options.listener.started(workerId, nodeId)
  }

  assign(worker: AttachedWorker, nowMs: number): void {
    this.worker = worker
    this.inEngine = new AbortController()
    this.activeMs = nowMs
  }

  /** While the reader does not accept output, the engine does not count as silent. */
  waitForReader(accepted: Promise<void>, clock: Clock): void {
    this.heldBack++
    const resume = (): void => {
      this.heldBack--
      this.activeMs = clock.monotonicMs()
    }
    accepted.then(resume, resume)
  }

  /** Reports the outcome to the listener. Only the first call has an effect. */
  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.#aborts.forget(this.options.request.signal, this)
    this.options.listener.end(end)
  }

  /** Whether this is a retry, which is sent without waiting for a fuller batch. */
  get isRetry(): boolean {
    return this.isAlone || this.wasLost
  }

  /**
   * Whether the request may be retried; if so, counts the retry. Each kind of failure allows one.
   */
  claimRetry(isLoss: boolean, batchSize: number): boolean {
    // In a batch of one, the request has already run alone.
    if (isLoss ? this.wasLost : this.isAlone || batchSize === 1) return false
    if (this.hasDelta && this.options.listener.restart?.() !== true) return false
    this.hasDelta = false
    if (isLoss) this.wasLost = true
    else this.isAlone = true
    return true
  }
}

/**
 * Orders requests by priority, then retries first, then by arrival. Every operation takes O(log
 * size) time, even removal.
 */
export class RequestQueue {
  readonly #byTurn = new PriorityQueue<QueuedRequest>((a, b) => {
    const difference = a.options.priority - b.options.priority
    if (difference !== 0) return difference > 0
    const isRetry = a.options.isRetry === true
    return isRetry === (b.options.isRetry === true) ? a.number < b.number : isRetry
  })
  readonly #byAge = new PriorityQueue<QueuedRequest>((a, b) => a.number < b.number)

  #bounded = 0
  #held = 0

  /** The number of queued requests, without held ones. */
  get size(): number {
    return this.#byTurn.size
  }

  /** The number of requests that no engine may get yet. */
  get held(): number {
    return this.#held
  }

  /** The number of requests, including held ones, that count against the limit of the queue. */
  get bounded(): number {
    return this.#bounded
  }

  next(): QueuedRequest | undefined {
    return this.#byTurn.peek()
  }

  oldest(): QueuedRequest | undefined {
    return this.#byAge.peek()
  }

  hold(request: QueuedRequest): void {
    request.isHeld = true
    this.#held++
    if (request.options.isBounded) this.#bounded++
  }

  /** A retried or released request is sorted by its original arrival. */
  add(request: QueuedRequest): void {
    if (request.options.isBounded) this.#bounded++
    request.turn = this.#byTurn.add(request)
    request.age = this.#byAge.add(request)
  }

  /** Has no effect on a request that is not in the queue. */
  remove(request: QueuedRequest): void {
    if (request.isHeld) {
      request.isHeld = false
      this.#held--
      if (request.options.isBounded) this.#bounded--
    }
    if (request.turn === null || request.age === null) return
    if (request.options.isBounded) this.#bounded--
    this.#byTurn.remove(request.turn)
    this.#byAge.remove(request.age)
    request.turn = null
    request.age = null
  }

  /** Removes and returns at most `size` requests. Never joins a request that must run alone. */
  take(size: number): QueuedRequest[] {
    const taken: QueuedRequest[] = []
    for (let next = this.next(); next !== undefined && taken.length < size; next = this.next()) {
      if (next.isAlone && taken.length > 0) break
      this.remove(next)
      taken.push(next)
      if (next.isAlone) break
    }
    return taken
  }
}
