/** The difference between the monotonic clocks of two machines, estimated from round trips. */

import type { Moment } from '../../../tasks/lifecycle.ts'

/** The number of measurements to keep. Older ones are dropped, because clocks drift. */
const maxMeasurements = 16

export class ClockOffset {
  #measurements: { readonly offsetMs: number; readonly roundTripMs: number }[] = []
  #offsetMs = 0

  get isKnown(): boolean {
    return this.#measurements.length > 0
  }

  /**
   * Adds a measurement. The estimate is that of the shortest round trip, which is the most
   * accurate.
   */
  add(sentMs: number, receivedThereMs: number, sentThereMs: number, receivedMs: number): void {
    const offsetMs = (receivedThereMs - sentMs + (sentThereMs - receivedMs)) / 2
    const roundTripMs = receivedMs - sentMs - (sentThereMs - receivedThereMs)
    this.#measurements = [...this.#measurements, { offsetMs, roundTripMs }].slice(-maxMeasurements)
    const best = this.#measurements.reduce((a, b) => (b.roundTripMs < a.roundTripMs ? b : a))
    this.#offsetMs = best.offsetMs
  }

  toLocalMs(thereMs: number): number {
    return thereMs - this.#offsetMs
  }
}

/** Converts a monotonic time to a moment. The wall time of the moment is never after now. */
export const toMoment = (monotonicMs: number, now: Moment): Moment => ({
  monotonicMs,
  wallSeconds: now.wallSeconds - Math.max(0, now.monotonicMs - monotonicMs) / 1000,
})

/** The agent that sent an event. `offset` is `null` if the agent is not connected. */
export interface EventSource {
  readonly name: string
  readonly offset: ClockOffset | null
}
