/** Limits the work per turn of the event loop, so that large amounts of it do not block I/O. */

import type { Clock } from '../foundation/clock.ts'
import { Fifo } from './fifo.ts'

/** Suitable for items of the size of a task or a request. */
const defaultPerTurn = 250

/**
 * Allows at most `perTurn` items per turn and, with `turnMs`, no further item once that time has
 * passed since the first. A timed budget is refilled after every turn that used it. Other budgets
 * are refilled only when `nextTurn` is awaited, so that work within the budget schedules nothing.
 */
export class TurnBudget {
  /** Whether the time of a turn is limited, so that `left` has to be read before every item. */
  readonly isTimed: boolean
  readonly #clock: Clock
  readonly #perTurn: number
  readonly #turnMs: number
  #left: number
  #untilMs = Infinity
  #refill: Promise<void> | null = null

  constructor(clock: Clock, perTurn = defaultPerTurn, turnMs = Infinity) {
    this.isTimed = turnMs !== Infinity
    this.#clock = clock
    this.#perTurn = perTurn
    this.#turnMs = turnMs
    this.#left = perTurn
  }

  /** How many items may still be processed in this turn. */
  get left(): number {
    if (this.#untilMs !== Infinity && this.#clock.monotonicMs() > this.#untilMs) return 0
    return this.#left
  }

  spend(amount = 1): void {
    this.#left -= amount
    if (!this.isTimed || this.#untilMs !== Infinity) return
    this.#untilMs = this.#clock.monotonicMs() + this.#turnMs
    void this.nextTurn()
  }

  /** Resolves in the next turn of the loop, when the whole budget is available again. */
  nextTurn(): Promise<void> {
    this.#refill ??= new Promise((resolve) =>
      this.#clock.nextTurn(() => {
        this.#refill = null
        this.#left = this.#perTurn
        this.#untilMs = Infinity
        resolve()
      }),
    )
    return this.#refill
  }
}

/**
 * Processes items in the order in which they were added, as soon as the code that adds them has
 * returned; beyond the budget, in later turns. Items that were added together are passed to `work`
 * in one call, or one by one if the budget is timed. `work` must not throw. Unbounded: callers
 * already hold the items.
 */
export class BudgetedQueue<T> {
  readonly #budget: TurnBudget
  readonly #work: (items: readonly T[]) => void
  readonly #items = new Fifo<T>()
  #isScheduled = false

  constructor(budget: TurnBudget, work: (items: readonly T[]) => void) {
    this.#budget = budget
    this.#work = work
  }

  add(item: T): void {
    this.#items.push(item)
    if (this.#isScheduled) return
    this.#isScheduled = true
    queueMicrotask(() => this.#process())
  }

  #process(): void {
    for (let left = this.#budget.left; left > 0; left = this.#budget.left) {
      const items = this.#items.take(this.#budget.isTimed ? 1 : left)
      if (items.length === 0) break
      this.#budget.spend(items.length)
      this.#work(items)
    }
    this.#isScheduled = this.#items.length > 0 || this.#budget.left <= 0
    if (this.#isScheduled) void this.#budget.nextTurn().then(() => this.#process())
  }
}

/** Work that can be interrupted wherever it yields. */
export type Steps<T> = Generator<undefined, T, undefined>

/** Does all of the work synchronously. */
export function runSteps<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/**
 * Spreads long work over turns of the event loop. Waiting work gets `turnMs` per turn in total, and
 * so does new work that arrives in that turn. Work is interrupted at its first step after that
 * time.
 */
export class StepScheduler {
  readonly #clock: Clock
  readonly #turnMs: number
  readonly #waiting = new Fifo<LongWork>()
  /** The time left for work that arrives before the next turn. */
  #leftMs: number
  #isScheduled = false

  constructor(clock: Clock, turnMs: number) {
    this.#clock = clock
    this.#turnMs = turnMs
    this.#leftMs = turnMs
  }

  /**
   * Short work is done when this returns, without a promise: each call may use half of the time
   * left in this turn, so that short work after long work is not delayed. If the signal is aborted
   * before longer work has ended, the promise rejects with its reason.
   */
  run<T>(
    steps: Steps<T>,
    signal: Pick<AbortSignal, 'throwIfAborted'> = neverAborted,
  ): T | Promise<T> {
    const done = this.#runOnArrival(steps)
    if (done !== undefined) return done.value
    return new Promise((resolve, reject) => {
      const proceed = (until: number): boolean => {
        try {
          signal.throwIfAborted()
          const end = this.#runUntil(steps, until)
          if (end === undefined) return false
          resolve(end.value)
        } catch (error) {
          reject(error)
        }
        return true
      }
      this.#waiting.push({ proceed })
      this.#schedule()
    })
  }

  #runOnArrival<T>(steps: Steps<T>): { readonly value: T } | undefined {
    const sliceMs = this.#leftMs / 2
    if (sliceMs < this.#turnMs * minSlice) return undefined
    const start = this.#clock.monotonicMs()
    try {
      return this.#runUntil(steps, start + sliceMs)
    } finally {
      this.#leftMs -= this.#clock.monotonicMs() - start
      // A small amount of time, even if used over many turns, does not justify scheduling a turn.
      if (this.#leftMs < this.#turnMs / 2) this.#schedule()
    }
  }

  #runUntil<T>(steps: Steps<T>, until: number): { readonly value: T } | undefined {
    for (;;) {
      const step = steps.next()
      if (step.done === true) return step
      if (this.#clock.monotonicMs() >= until) return undefined
    }
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    this.#clock.nextTurn(() => {
      this.#isScheduled = false
      this.#leftMs = this.#turnMs
      this.#turn()
    })
  }

  /** Round robin, so that short work does not wait for long work. */
  #turn(): void {
    const until = this.#clock.monotonicMs() + this.#turnMs
    do {
      const [work] = this.#waiting.take(1)
      if (work === undefined) return
      if (!work.proceed(until)) this.#waiting.push(work)
    } while (this.#clock.monotonicMs() < until)
    if (this.#waiting.length > 0) this.#schedule()
  }
}

const neverAborted = { throwIfAborted() {} }

/** With a smaller part of a turn left, new work is not begun: it would hardly be completed. */
const minSlice = 1 / 64

interface LongWork {
  /** Returns whether the work has ended. */
  readonly proceed: (until: number) => boolean
}
