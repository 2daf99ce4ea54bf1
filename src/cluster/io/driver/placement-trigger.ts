/**
 * Decides when waiting jobs are placed: a few immediately, many together, because a message costs
 * as much as many jobs.
 */

import type { Clock } from '../../../foundation/clock.ts'

/** The minimum size of a part. Many jobs are submitted in parts, one per turn of the event loop. */
const minPartSize = 200
/** Parts that arrive within this time after a placement wait for the next placement. */
const gatherTimeMs = 20
/** With this many waiting jobs, little is gained by waiting for further parts. */
const maxGatheredJobs = 2000
/** The number of turns without another part after which no more parts are expected. */
const maxQuietTurns = 2

export class PlacementTrigger {
  readonly #clock: Clock
  readonly #place: () => void
  #placedMs = -Infinity
  #isScheduled = false
  /** The number of turns since the last part; `null` if no more parts are expected. */
  #turns: number | null = null
  #isAwaiting = false

  /** `place` must do nothing if no job can be placed. */
  constructor(clock: Clock, place: () => void) {
    this.#clock = clock
    this.#place = place
  }

  handleSubmit(count: number, waiting: number): void {
    const nowMs = this.#clock.monotonicMs()
    const isPartOfMany = count >= minPartSize && waiting < maxGatheredJobs
    if (!isPartOfMany || nowMs - this.#placedMs >= gatherTimeMs) return this.#run(nowMs)
    this.#turns = 0
    if (!this.#isAwaiting) this.#awaitPart()
  }

  schedule(): void {
    if (this.#isScheduled || this.#turns !== null) return
    this.#isScheduled = true
    this.#clock.nextTurn(() => {
      if (this.#isScheduled) this.#run(this.#clock.monotonicMs())
    })
  }

  #awaitPart(): void {
    this.#isAwaiting = true
    this.#clock.nextTurn(() => {
      this.#isAwaiting = false
      if (this.#turns === null) return
      if (++this.#turns < maxQuietTurns) this.#awaitPart()
      else this.#run(this.#clock.monotonicMs())
    })
  }

  #run(nowMs: number): void {
    this.#placedMs = nowMs
    this.#isScheduled = false
    this.#turns = null
    this.#place()
  }
}
