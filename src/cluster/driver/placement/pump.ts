/**
 * When jobs that wait are placed: at once if few were submitted, and together if a session submits
 * a large bag, which comes in parts. A message costs as much as many jobs, and with many nodes each
 * would get a message of a few jobs for every part.
 */

import type { Clock } from '../../../foundation/clock.ts'

/** A session submits a large bag in parts of this size or more, one in a turn of the loop. */
const partSize = 200
/** Parts that follow within this time of a placement wait for the next one. */
const gatherMs = 20
/** With as many jobs more parts change little. */
const mostGathered = 2000
/** After as many turns of the loop without a further part there is none. */
const quietTurns = 2

export class Pump {
  readonly #clock: Clock
  readonly #place: () => void
  #placedMs = -Infinity
  #isDue = false
  /** Turns since the last part, while there may be more; `null` otherwise. */
  #turns: number | null = null
  #isAwaiting = false

  /** `place` does nothing while nothing can be placed. */
  constructor(clock: Clock, place: () => void) {
    this.#clock = clock
    this.#place = place
  }

  /** So many jobs were submitted just now, and `waiting` wait in all. */
  submitted(count: number, waiting: number): void {
    const nowMs = this.#clock.monotonicMs()
    const isPart = count >= partSize && waiting < mostGathered
    if (!isPart || nowMs - this.#placedMs >= gatherMs) return this.#run(nowMs)
    this.#turns = 0
    if (!this.#isAwaiting) this.#awaitPart()
  }

  /** In the next turn of the loop, or with the parts that are being gathered. */
  soon(): void {
    if (this.#isDue || this.#turns !== null) return
    this.#isDue = true
    this.#clock.nextTurn(() => {
      if (this.#isDue) this.#run(this.#clock.monotonicMs())
    })
  }

  #awaitPart(): void {
    this.#isAwaiting = true
    this.#clock.nextTurn(() => {
      this.#isAwaiting = false
      if (this.#turns === null) return
      if (++this.#turns < quietTurns) this.#awaitPart()
      else this.#run(this.#clock.monotonicMs())
    })
  }

  #run(nowMs: number): void {
    this.#placedMs = nowMs
    this.#isDue = false
    this.#turns = null
    this.#place()
  }
}
