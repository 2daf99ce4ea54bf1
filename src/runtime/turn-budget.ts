/** Limits the work per turn of the event loop, so that it does not block I/O. */

import type { Clock } from '../foundation/clock.ts'
import { Fifo } from './fifo.ts'

/** The default number of items per turn, which suits items such as tasks and requests. */
const defaultPerTurn = 250

/**
 * Allows at most `perTurn` items per turn. With `turnMs`, also allows no further item when that
 * time has passed since the first item of the turn. A timed budget is refilled after every turn
 * that used it. Any other budget is refilled only by `nextTurn`, so that work within the budget
 * schedules nothing.
 */
export class TurnBudget {
  /** Whether the time is limited, so that `left` must be read before every item. */
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
 * Processes items in order, as soon as the code that adds them has returned. Items beyond the
 * budget are processed in later turns. Items added together are passed to `work` in one call, or
 * one by one if the budget is timed. `work` must not throw.
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
      const items = this.#items.shiftMany(this.#budget.isTimed ? 1 : left)
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
 * Spreads long work over turns of the event loop. In each turn, waiting work gets `turnMs` in
 * total, and so does new work.
 */
export class StepScheduler {
  readonly #clock: Clock
  readonly #turnMs: number
  /** Each function works until the given time, and returns whether its work has ended. */
  readonly #waiting = new Fifo<(until: number) => boolean>()
  #leftMs: number
  #isScheduled = false

  constructor(clock: Clock, turnMs: number) {
    this.#clock = clock
    this.#turnMs = turnMs
    this.#leftMs = turnMs
  }

  /**
   * Returns the result of short work directly, without a promise. Each call may use half of the
   * time left in this turn. The promise of longer work rejects with the signal's reason if the
   * signal is aborted.
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
      this.#waiting.push(proceed)
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
      // Schedules a turn only if more than half of the time was used.
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
      this.#runTurn()
    })
  }

  /** Runs waiting work as round robin, so that short work does not wait for long work. */
  #runTurn(): void {
    const until = this.#clock.monotonicMs() + this.#turnMs
    do {
      const proceed = this.#waiting.shift()
      if (proceed === undefined) return
      if (!proceed(until)) this.#waiting.push(proceed)
    } while (this.#clock.monotonicMs() < until)
    if (this.#waiting.length > 0) this.#schedule()
  }
}

const neverAborted = { throwIfAborted() {} }

/** New work is not begun if less than this part of a turn is left. */
const minSlice = 1 / 64
