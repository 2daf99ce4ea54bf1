/** The difference between the monotonic clocks of two machines, estimated from round trips. */

import type { Moment } from '../../../tasks/lifecycle.ts'

interface Measurement {
  readonly offsetMs: number
  readonly roundTripMs: number
}

/** Old measurements are forgotten: clocks drift. */
const kept = 16

export class ClockOffset {
  #measurements: Measurement[] = []
  #offsetMs = 0

  /** Whether anything was measured. */
  get isKnown(): boolean {
    return this.#measurements.length > 0
  }

  /**
   * A request that was sent and answered at times of this machine, received and answered at times
   * of the other one. The shortest round trip tells most: it has waited nowhere.
   */
  add(sentMs: number, receivedThereMs: number, sentThereMs: number, receivedMs: number): void {
    const offsetMs = (receivedThereMs - sentMs + (sentThereMs - receivedMs)) / 2
    const roundTripMs = receivedMs - sentMs - (sentThereMs - receivedThereMs)
    this.#measurements = [...this.#measurements, { offsetMs, roundTripMs }].slice(-kept)
    const best = this.#measurements.reduce((a, b) => (b.roundTripMs < a.roundTripMs ? b : a))
    this.#offsetMs = best.offsetMs
  }

  /** A time of the other machine as a time of this one. */
  toHere(thereMs: number): number {
    return thereMs - this.#offsetMs
  }
}

/** Its wall time is not after now. */
export const toMoment = (monotonicMs: number, now: Moment): Moment => ({
  monotonicMs,
  wallSeconds: now.wallSeconds - Math.max(0, now.monotonicMs - monotonicMs) / 1000,
})

/** The agent that told an event, with its clock if it is there. */
export interface EventSource {
  readonly name: string
  readonly agent: { readonly offset: ClockOffset } | null
}
