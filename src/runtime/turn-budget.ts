/** Limits the work per turn of the event loop, so that a mass of work does not block I/O. */

import type { Clock } from '../foundation/clock.ts'
import { Fifo } from './fifo.ts'

/** Items of the size of a task or a request. */
const defaultPerTurn = 250

/**
 * Refilled when somebody waits for the next turn, not in every turn: what stays within the budget
 * schedules nothing, and no turn gets more than `perTurn`.
 */
export class TurnBudget {
  readonly #clock: Clock
  readonly #perTurn: number
  #left: number
  #refill: Promise<void> | null = null

  constructor(clock: Clock, perTurn = defaultPerTurn) {
    this.#clock = clock
    this.#perTurn = perTurn
    this.#left = perTurn
  }

  /** How much work may still be done in this turn. */
  get left(): number {
    return this.#left
  }

  spend(amount = 1): void {
    this.#left -= amount
  }

  /** Resolves in the next turn of the loop, in which the whole budget is available again. */
  nextTurn(): Promise<void> {
    this.#refill ??= new Promise((resolve) =>
      this.#clock.nextTurn(() => {
        this.#refill = null
        this.#left = this.#perTurn
        resolve()
      }),
    )
    return this.#refill
  }
}

/**
 * Processes items in the order in which they were added, those that are added together in one call
 * of `work`, as soon as the code that adds them has returned; beyond the budget in later turns.
 * `work` must not throw. Unbounded: callers already hold the items.
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
    while (this.#budget.left > 0) {
      const items = this.#items.take(this.#budget.left)
      if (items.length === 0) break
      this.#budget.spend(items.length)
      this.#work(items)
    }
    this.#isScheduled = this.#items.length > 0 || this.#budget.left <= 0
    if (this.#isScheduled) void this.#budget.nextTurn().then(() => this.#process())
  }
}
