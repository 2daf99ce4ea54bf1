/** Many deadlines on one timer, and a timer for a point in time. */

import type { Clock } from '../foundation/clock.ts'
import { PriorityQueue, type QueueEntry } from './priority-queue.ts'
import { TurnBudget } from './turn-budget.ts'

/** An item with at most one deadline. Only `Deadlines` writes these fields. */
export interface HasDeadline {
  /** Monotonic milliseconds; `Infinity` without a deadline. */
  deadlineMs: number
  deadlineEntry: QueueEntry | null
}

/**
 * The maximum number of callbacks per turn, because expired deadlines must not block other work.
 */
const maxPerTurn = 1000

/** Calls back for each item whose deadline has passed. The item then has no deadline. */
export class Deadlines<T extends HasDeadline> {
  readonly #clock: Clock
  readonly #onExpired: (item: T) => void
  readonly #queue = new PriorityQueue<T>((a, b) => a.deadlineMs < b.deadlineMs)
  readonly #timer: DeadlineTimer
  readonly #budget: TurnBudget
  #isContinuing = false

  constructor(clock: Clock, onExpired: (item: T) => void) {
    this.#clock = clock
    this.#onExpired = onExpired
    this.#timer = new DeadlineTimer(clock, () => this.#expire())
    this.#budget = new TurnBudget(clock, maxPerTurn)
  }

  /**
   * Sets the deadline of an item, unless it has an earlier one. The callback of the earlier one may
   * set `dueMs`.
   */
  set(item: T, dueMs: number): void {
    if (dueMs >= item.deadlineMs) return
    if (item.deadlineEntry !== null) this.#queue.remove(item.deadlineEntry)
    item.deadlineMs = dueMs
    item.deadlineEntry = this.#queue.add(item)
    if (dueMs < this.#timer.dueMs) this.#timer.set(dueMs)
  }

  remove(item: T): void {
    if (item.deadlineEntry === null) return
    this.#queue.remove(item.deadlineEntry)
    item.deadlineEntry = null
    item.deadlineMs = Infinity
    // If items remain, keeps the timer: firing early costs less than setting a new timer.
    if (this.#queue.size === 0) this.#timer.set(Infinity)
  }

  #expire(): void {
    if (this.#isContinuing) return
    const nowMs = this.#clock.monotonicMs()
    while (this.#budget.left > 0) {
      const item = this.#queue.peek()
      if (item === undefined) return
      if (item.deadlineMs > nowMs) return this.#timer.set(item.deadlineMs)
      this.#budget.spend()
      this.remove(item)
      this.#onExpired(item)
    }
    this.#isContinuing = true
    void this.#budget.nextTurn().then(() => this.#expireRest())
  }

  #expireRest(): void {
    this.#isContinuing = false
    this.#expire()
  }
}

/** One timer for a point in time. A new time replaces the old one. */
export class DeadlineTimer {
  readonly #clock: Clock
  readonly #onDue: () => void
  #dueMs = Infinity
  #cancel = (): void => {}

  constructor(clock: Clock, onDue: () => void) {
    this.#clock = clock
    this.#onDue = onDue
  }

  get dueMs(): number {
    return this.#dueMs
  }

  /** Sets the time at which the timer fires. `Infinity` clears the timer. */
  set(dueMs: number): void {
    if (dueMs === this.#dueMs) return
    this.#cancel()
    this.#dueMs = dueMs
    if (dueMs !== Infinity) this.#startTimer()
  }

  /** Starts the timer. A timer may fire up to 1 ms early; this method then waits for the rest. */
  #startTimer(): void {
    const leftMs = Math.max(0, this.#dueMs - this.#clock.monotonicMs())
    this.#cancel = this.#clock.after(leftMs, () => {
      if (this.#clock.monotonicMs() < this.#dueMs) return this.#startTimer()
      this.#dueMs = Infinity
      this.#onDue()
    })
  }
}
