/** The queue of requests that no engine has yet, and the state of each request in the batcher. */

import type { Clock } from '../../foundation/clock.ts'
import type { AbortRegistry } from '../../runtime/abort-registry.ts'
import type { HasDeadline } from '../../runtime/deadlines.ts'
import { PriorityQueue, type QueueEntry } from '../../runtime/priority-queue.ts'
import type { AttachedWorker } from './batch-policy.ts'
import type { GenerationDelta, GenerationEnd, GenerationRequest } from './inference-engine.ts'

/** A request for the batcher. */
export interface EnqueueOptions {
  /** Its signal removes it from the queue at once, or aborts it in the engine. */
  readonly request: GenerationRequest
  /** Higher goes first; among equals retries, then first come, first served. */
  readonly priority: number
  readonly isRetry?: boolean
  /** From now on, time in the queue included; `null` for no limit. */
  readonly timeoutMs: number | null
  /**
   * Whether a full queue rejects it, and the lack of an engine that starts. Tasks are limited by
   * their session instead, and wait.
   */
  readonly isBounded: boolean
  readonly listener: QueueListener
}

/** Receives what happens to one request. No call may throw. */
export interface QueueListener {
  /** An engine has begun with the request. Called once at most, before everything else. */
  started(workerId: string): void
  /** More text. The engine pauses this request until a returned promise settles. */
  delta(delta: GenerationDelta): Promise<void> | undefined
  /**
   * Asked before a request that has produced text is retried: `true` discards that text. Without
   * this method, or on `false` because a client has read it, the request fails instead.
   */
  restart?(): boolean
  /** Called exactly once, after everything else. */
  end(end: GenerationEnd): void
}

/** The state of one accepted request. Calls `started` at most once and `end` exactly once. */
export class QueuedRequest implements HasDeadline {
  readonly options: EnqueueOptions
  /** What an engine gets; a held request gets its input when it is released. */
  request: GenerationRequest
  /** The order of arrival. */
  readonly number: number
  readonly sinceMs: number
  /** When its own time-out expires. */
  readonly dueMs: number
  readonly #aborts: AbortRegistry<QueuedRequest>
  hasStarted = false
  /** The listener has text, so a retry needs its consent. */
  hasDelta = false
  /** The listener was told the end; an engine may still work on the request. */
  hasEnded = false
  /** Its batch failed as a whole; it is retried in a batch of its own. */
  isAlone = false
  /** Its engine was lost once. */
  wasLost = false
  /** Aborts it in the engine that has it; `null` while no engine has it. */
  inEngine: AbortController | null = null
  /** The worker that has it, or had it last. */
  worker: AttachedWorker | null = null
  /** When the engine was last active for it. */
  activeMs = 0
  /** Deltas that its reader has not accepted yet. */
  heldBack = 0
  /** Counts as queued, but no engine may get it yet. */
  isHeld = false
  /** Its positions in the queue. */
  turn: QueueEntry | null = null
  age: QueueEntry | null = null
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null

  /** Watches the request's signal through `aborts` until the end. */
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

  start(workerId: string): void {
    if (this.hasStarted) return
    this.hasStarted = true
    this.options.listener.started(workerId)
  }

  /** Assigns it to an engine. */
  assign(worker: AttachedWorker, nowMs: number): void {
    this.worker = worker
    this.inEngine = new AbortController()
    this.activeMs = nowMs
  }

  /** Passes text on. Time in which the reader holds it back does not count as engine silence. */
  delta(delta: GenerationDelta, clock: Clock): Promise<void> | undefined {
    if (this.hasEnded) return undefined
    this.hasDelta = true
    this.activeMs = clock.monotonicMs()
    const accepted = this.options.listener.delta(delta)
    if (accepted === undefined) return undefined
    this.heldBack++
    const resume = (): void => {
      this.heldBack--
      this.activeMs = clock.monotonicMs()
    }
    accepted.then(resume, resume)
    return accepted
  }

  /** Only the first call has an effect. */
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

  /** Whether it may be retried after such a failure; each kind of failure has one retry. */
  claimRetry(isLoss: boolean, batchSize: number): boolean {
    // In a batch of one it was alone already.
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

  /** How many an engine may get. */
  get size(): number {
    return this.#byTurn.size
  }

  /** How many an engine may not get yet. */
  get held(): number {
    return this.#held
  }

  /** How many of them count against the limit. */
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

  /** A retried or released request takes the position of its arrival. */
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

  /** Removes the next ones, at most `size`; one that must go alone is returned alone. */
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
