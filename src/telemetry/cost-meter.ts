/** Estimates the CPU time that telemetry takes from the emitting thread, from samples. */

import type { Clock } from '../foundation/clock.ts'

/** One call in this many is measured, because reading the clock costs almost as much. */
const sampledPart = 32
/** A longer call was interrupted or waited for the disk, so it counts only for itself. */
const maxTypicalMs = 1

export class CostMeter {
  readonly #clock: Clock
  #calls = 0
  #milliseconds = 0
  #from = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get seconds(): number {
    return this.#milliseconds / 1000
  }

  /** Returns whether this call is measured. If so, `end` must follow. */
  begin(): boolean {
    if (++this.#calls % sampledPart !== 0) return false
    this.#from = this.#clock.monotonicMs()
    return true
  }

  end(): void {
    const milliseconds = this.#clock.monotonicMs() - this.#from
    this.#milliseconds += milliseconds * (milliseconds > maxTypicalMs ? 1 : sampledPart)
  }
}
