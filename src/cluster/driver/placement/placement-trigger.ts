/**
 * Decides when waiting jobs are placed: immediately if few were submitted; together if a session
 * submits a large number, which arrives in parts. A message costs as much as many jobs, and with
 * many nodes each part would cause a message of a few jobs to every node.
 */

import type { Clock } from '../../../foundation/clock.ts'

/** A session submits many jobs in parts of at least this size, one per turn of the event loop. */
const partSize = 200
/** Parts that follow a placement within this time wait for the next one. */
const gatherMs = 20
/** With this many waiting jobs, further parts make little difference. */
const maxGathered = 2000
/** After this many turns without another part, no more parts are expected. */
const quietTurns = 2

export class PlacementTrigger {
  readonly #clock: Clock
  readonly #place: () => void
  #placedMs = -Infinity
  #isDue = false
  /** Turns since the last part, while more may follow; `null` otherwise. */
  #turns: number | null = null
  #isAwaiting = false

  /** `place` must do nothing if no job can be placed. */
  constructor(clock: Clock, place: () => void) {
    this.#clock = clock
    this.#place = place
  }

  /** Called after `count` jobs were submitted; `waiting` is the total number of waiting jobs. */
  submitted(count: number, waiting: number): void {
    const nowMs = this.#clock.monotonicMs()
    const isPart = count >= partSize && waiting < maxGathered
    if (!isPart || nowMs - this.#placedMs >= gatherMs) return this.#run(nowMs)
    this.#turns = 0
    if (!this.#isAwaiting) this.#awaitPart()
  }

  /** Places jobs in the next turn, or together with parts that are still arriving. */
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
