/** The difference between the monotonic clocks of two machines, estimated from round trips. */

import type { Moment } from '../../../tasks/lifecycle.ts'

interface Measurement {
  readonly offsetMs: number
  readonly roundTripMs: number
}

/** Older measurements are dropped, because clocks drift. */
const kept = 16

export class ClockOffset {
  #measurements: Measurement[] = []
  #offsetMs = 0

  /** Whether there is a measurement. */
  get isKnown(): boolean {
    return this.#measurements.length > 0
  }

  /**
   * Adds a request that was sent and answered at times of this machine, and received and answered
   * at times of the other. The shortest round trip gives the most accurate estimate.
   */
  add(sentMs: number, receivedThereMs: number, sentThereMs: number, receivedMs: number): void {
    const offsetMs = (receivedThereMs - sentMs + (sentThereMs - receivedMs)) / 2
    const roundTripMs = receivedMs - sentMs - (sentThereMs - receivedThereMs)
    this.#measurements = [...this.#measurements, { offsetMs, roundTripMs }].slice(-kept)
    const best = this.#measurements.reduce((a, b) => (b.roundTripMs < a.roundTripMs ? b : a))
    this.#offsetMs = best.offsetMs
  }

  /** Converts a time of the other machine to a time of this machine. */
  toHere(thereMs: number): number {
    return thereMs - this.#offsetMs
  }
}

/** Converts a monotonic time to a moment whose wall time is not after now. */
export const toMoment = (monotonicMs: number, now: Moment): Moment => ({
  monotonicMs,
  wallSeconds: now.wallSeconds - Math.max(0, now.monotonicMs - monotonicMs) / 1000,
})

/** The agent that sent an event, with its clock if it is present. */
export interface EventSource {
  readonly name: string
  readonly agent: { readonly offset: ClockOffset } | null
}
