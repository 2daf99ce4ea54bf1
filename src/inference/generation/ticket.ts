/** One accepted request on its way through the batcher: where it stands, and who is to be told. */

import type { Clock } from '../../foundation/clock.ts'
import type { GenerationDelta, GenerationEnd, GenerationRequest } from './inference-engine.ts'
import type { HasDeadline } from '../../runtime/deadlines.ts'
import type { QueueEntry } from '../../runtime/priority-queue.ts'
import type { AbortRegistry } from '../../runtime/abort-registry.ts'
import type { Seat } from './seat.ts'

/** A request that is to be answered. */
export interface QueuedRequest {
  /** Its signal makes it leave the queue at once, or end in the engine. */
  readonly request: GenerationRequest
  /** Higher goes first; among equals, first come, first served. */
  readonly priority: number
  /** From now on, waiting included; `null` for no limit. */
  readonly timeoutMs: number | null
  /** It is refused when too many of its kind wait. Tasks are held back elsewhere. */
  readonly isBounded: boolean
  readonly listener: QueueListener
}

/** Who is told about one request. No call may throw. */
export interface QueueListener {
  /** An engine has begun with it. Once at most, before everything else. */
  started(workerId: string): void
  /** More text. A promise holds the generation back until it settles. */
  delta(delta: GenerationDelta): Promise<void> | undefined
  /**
   * The engine has failed, and another may begin again: true drops the text so far. Without it, or
   * when it says no because somebody has read that text, the request fails.
   */
  restart?(): boolean
  /** Exactly once, and nothing after it. */
  end(end: GenerationEnd): void
}

/** Plain state, but for the two promises to its listener: one start at most, one end. */
export class Ticket implements HasDeadline {
  readonly queued: QueuedRequest
  /** The order of arrival. */
  readonly number: number
  readonly sinceMs: number
  /** When its own time runs out. */
  readonly dueMs: number
  readonly #leaving: AbortRegistry<Ticket>
  hasStarted = false
  /** Its listener has a part of the answer, so nobody can begin it again without asking. */
  hasDelta = false
  /** Its listener was told the end; an engine may still have it. */
  hasEnded = false
  /** It was in a batch that failed as a whole, and goes alone now. */
  isAlone = false
  /** Its engine was lost once. */
  wasLost = false
  /** Ends it in the engine that has it; `null` while no engine has it. */
  inEngine: AbortController | null = null
  /** Who has it, or had it last. */
  seat: Seat | null = null
  /** When the engine last gave a sign. */
  heardMs = 0
  /** How many deltas its reader has not digested. */
  heldBack = 0
  /** Its entries in the waiting line. */
  turn: QueueEntry | null = null
  age: QueueEntry | null = null
  deadlineEntry: QueueEntry | null = null
  deadlineMs = Infinity

  /** `leaving` watches it until its end. */
  constructor(
    queued: QueuedRequest,
    number: number,
    sinceMs: number,
    leaving: AbortRegistry<Ticket>,
  ) {
    this.queued = queued
    this.number = number
    this.sinceMs = sinceMs
    this.dueMs = queued.timeoutMs === null ? Infinity : sinceMs + queued.timeoutMs
    this.#leaving = leaving
    leaving.watch(queued.request.signal, this)
  }

  start(workerId: string): void {
    if (this.hasStarted) return
    this.hasStarted = true
    this.queued.listener.started(workerId)
  }

  /** An engine gets it. */
  enter(seat: Seat, nowMs: number): void {
    this.seat = seat
    this.inEngine = new AbortController()
    this.heardMs = nowMs
  }

  /** Passes text on. While its reader holds it back, the silence is not the engine's. */
  delta(delta: GenerationDelta, clock: Clock): Promise<void> | undefined {
    if (this.hasEnded) return undefined
    this.hasDelta = true
    this.heardMs = clock.monotonicMs()
    const digested = this.queued.listener.delta(delta)
    if (digested === undefined) return undefined
    this.heldBack++
    const goOn = (): void => {
      this.heldBack--
      this.heardMs = clock.monotonicMs()
    }
    digested.then(goOn, goOn)
    return digested
  }

  /** Tells the end, once. */
  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.#leaving.forget(this.queued.request.signal, this)
    this.queued.listener.end(end)
  }

  /** It comes back to the line: what it waited for before is enough. */
  get isRetry(): boolean {
    return this.isAlone || this.wasLost
  }

  /** Whether it may be tried again after such a failure; each kind of failure has one retry. */
  claimRetry(isLoss: boolean, batchSize: number): boolean {
    // In a batch of one it was alone already.
    if (isLoss ? this.wasLost : this.isAlone || batchSize === 1) return false
    if (this.hasDelta && this.queued.listener.restart?.() !== true) return false
    this.hasDelta = false
    if (isLoss) this.wasLost = true
    else this.isAlone = true
    return true
  }
}
