/** A line that is worked off in the turn in which it began, in slices that leave the loop free. */

import type { Clock } from '../foundation/clock.ts'
import { Fifo } from '../runtime/fifo.ts'

/** Items per turn of the loop. */
const sliceSize = 250

/**
 * What is added together is worked off together, as soon as whoever adds has returned. `work` must
 * not throw. The line is as long as what callers made without waiting.
 */
export class Slices<N> {
  readonly #clock: Clock
  readonly #work: (items: readonly N[]) => void
  readonly #line = new Fifo<N>()
  #leftThisTurn = sliceSize
  #isScheduled = false

  constructor(clock: Clock, work: (items: readonly N[]) => void) {
    this.#clock = clock
    this.#work = work
  }

  add(item: N): void {
    this.#line.push(item)
    if (this.#isScheduled) return
    this.#isScheduled = true
    queueMicrotask(() => this.#workOff())
  }

  #workOff(): void {
    while (this.#leftThisTurn > 0) {
      const slice = this.#line.take(this.#leftThisTurn)
      if (slice.length === 0) break
      this.#leftThisTurn -= slice.length
      this.#work(slice)
    }
    this.#isScheduled = this.#line.length > 0
    if (!this.#isScheduled && this.#leftThisTurn > 0) return
    this.#isScheduled = true
    this.#clock.nextTurn(() => {
      this.#leftThisTurn = sliceSize
      this.#workOff()
    })
  }
}
