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
  /** Aborting its signal removes the request from the queue at once, or aborts it in the engine. */
  readonly request: GenerationRequest
  /** Higher is served first. Among equals, retries go first, then the order of arrival counts. */
  readonly priority: number
  readonly isRetry?: boolean
  /** Runs from now on and includes the time in the queue; `null` for no limit. */
  readonly timeoutMs: number | null
  /**
   * Whether the request is rejected when the queue is full or no engine is able to start. Requests
   * of tasks wait instead: their session limits them.
   */
  readonly isBounded: boolean
  readonly listener: QueueListener
}

/** Receives what happens to one request. No call may throw. */
export interface QueueListener {
  /** An engine has begun with the request. Called once at most, before everything else. */
  started(workerId: string, nodeId: string | undefined): void
  /** More text. The engine pauses this request until a returned promise settles. */
  delta(delta: GenerationDelta): Promise<void> | undefined
  /**
   * Called before a request that has produced text is retried: `true` discards that text. Without
   * this method, or if it returns `false` because a client has read the text, the request fails.
   */
  restart?(): boolean
  /** Called exactly once, after everything else. */
  end(end: GenerationEnd): void
}

/** The state of one accepted request. Calls `started` at most once and `end` exactly once. */
export class QueuedRequest implements HasDeadline {
  readonly options: EnqueueOptions
  /** The request as engines get it; a held request gets its checked input when it is released. */
  request: GenerationRequest
  /** The order of arrival. */
  readonly number: number
  readonly sinceMs: number
  /** When the request's own time-out expires. */
  readonly dueMs: number
  readonly #aborts: AbortRegistry<QueuedRequest>
  hasStarted = false
  /** The listener has received text, so a retry needs its consent. */
  hasDelta = false
  /** The listener has been told of the end; an engine may still work on the request. */
  hasEnded = false
  /** The request's batch failed as a whole, so the request is retried in a batch of its own. */
  isAlone = false
  /** The engine that had the request was lost once. */
  wasLost = false
  /** Aborts the request in the engine that has it; `null` while no engine has it. */
  inEngine: AbortController | null = null
  /** The worker that has the request, or had it last. */
  worker: AttachedWorker | null = null
  /** When the engine last reported something about the request. */
  activeMs = 0
  /** The number of deltas that the reader has not accepted yet. */
  heldBack = 0
  /** The request counts as queued, but no engine may get it yet. */
  isHeld = false
  /** The entries of the request in the queue. */
  turn: QueueEntry | null = null
  age: QueueEntry | null = null
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null

  /** Listens to the request's signal through `aborts` until the end. */
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

  /** Time in which the reader does not accept output is not engine silence. */
  waitForReader(accepted: Promise<void>, clock: Clock): void {
    this.heldBack++
    const resume = (): void => {
      this.heldBack--
      this.activeMs = clock.monotonicMs()
    }
    accepted.then(resume, resume)
  }

  /** Reports the end to the listener; only the first call has an effect. */
  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.#aborts.forget(this.options.request.signal, this)
    this.options.listener.end(end)
  }

  /** A retry is sent without waiting for a fuller batch. */
  get isRetry(): boolean {
    return this.isAlone || this.wasLost
  }

  /**
   * Whether the request may be retried after this failure; each kind of failure allows one retry.
   */
  claimRetry(isLoss: boolean, batchSize: number): boolean {
    // A batch of one was already a run of the request alone.
    if (isLoss ? this.wasLost : this.isAlone || batchSize === 1) return false
    if (this.hasDelta && this.options.listener.restart?.() !== true) return false
    this.hasDelta = false
    if (isLoss) this.wasLost = true
    else this.isAlone = true
    return true
  }
}

/**
 * Requests by priority, retries first, then by arrival. Every operation costs log(size), removal
 * included.
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

  /** How many requests an engine may get. */
  get size(): number {
    return this.#byTurn.size
  }

  /** How many requests are held, so that no engine may get them yet. */
  get held(): number {
    return this.#held
  }

  /** How many requests, held ones included, count against the limit of the queue. */
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

  /** A retried or released request gets the position of its arrival. */
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

  /** Removes and returns at most `size` requests; one that must run alone is returned alone. */
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
