/** Times of the machine's monotonic clock, and their conversion to a session's clock. */

import type { Clock } from '../../foundation/clock.ts'
import type { Moment } from '../../tasks/lifecycle.ts'

/** The monotonic clock that all threads and processes of a machine share, in milliseconds. */
export function machineMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}

/** One reading of all clocks. It suffices to convert any number of times. */
export interface ClockReading extends Moment {
  readonly machineMs: number
}

/** A slower reading was interrupted, so its clocks were not read at the same moment. */
const maxReadingMs = 1
const maxAttempts = 10

export function readClocks(clock: Clock): ClockReading {
  for (let count = 1; ; count++) {
    const before = machineMs()
    const [wallSeconds, monotonicMs] = [clock.now(), clock.monotonicMs()]
    const isUninterrupted = machineMs() - before <= maxReadingMs
    if (isUninterrupted || count === maxAttempts)
      return { wallSeconds, monotonicMs, machineMs: before }
  }
}

/**
 * Converts a machine time to the session's clocks. A time after `reading` becomes the time of
 * `reading`.
 */
export function toMoment(reading: ClockReading, atMachineMs: number): Moment {
  const agoMs = Math.max(0, reading.machineMs - atMachineMs)
  return {
    wallSeconds: reading.wallSeconds - agoMs / 1000,
    monotonicMs: reading.monotonicMs - agoMs,
  }
}
