/** Estimates the CPU time that telemetry takes from the emitting thread, from samples. */

import type { Clock } from '../foundation/clock.ts'

/** Measures one of this many calls, because reading the clock costs almost as much as a call. */
const callsPerSample = 32
/**
 * A longer call was interrupted or waited for the disk. Its time is not multiplied by
 * `callsPerSample`.
 */
const maxTypicalMs = 1

export class CostMeter {
  readonly #clock: Clock
  #calls = 0
  #milliseconds = 0
  #startedMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get seconds(): number {
    return this.#milliseconds / 1000
  }

  /** Returns whether this call is measured. If so, `end` must follow. */
  begin(): boolean {
    if (++this.#calls % callsPerSample !== 0) return false
    this.#startedMs = this.#clock.monotonicMs()
    return true
  }

  end(): void {
    const milliseconds = this.#clock.monotonicMs() - this.#startedMs
    this.#milliseconds += milliseconds * (milliseconds > maxTypicalMs ? 1 : callsPerSample)
  }
}
