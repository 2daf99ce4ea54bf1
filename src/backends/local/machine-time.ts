/** Times that all processes of a machine agree on, and their conversion to a session's clock. */

import type { Clock } from '../../foundation/clock.ts'
import type { Moment } from '../../tasks/lifecycle.ts'

/** Milliseconds of the machine's monotonic clock, which is the same in every thread and process. */
export function machineMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}

/** One reading of all clocks, with which many times can be converted. */
export interface TimeReading extends Moment {
  readonly machineMs: number
}

/** A reading that takes longer was interrupted, so its clocks were not read at the same moment. */
const maxReadingMs = 1
const maxReadings = 10

export function readTime(clock: Clock): TimeReading {
  for (let count = 1; ; count++) {
    const before = machineMs()
    const [wallSeconds, monotonicMs] = [clock.now(), clock.monotonicMs()]
    const isOneMoment = machineMs() - before <= maxReadingMs
    if (isOneMoment || count === maxReadings) return { wallSeconds, monotonicMs, machineMs: before }
  }
}

/** Converts a machine time that is not later than the reading to the clock that was read. */
export function momentOf(reading: TimeReading, atMachineMs: number): Moment {
  const agoMs = Math.max(0, reading.machineMs - atMachineMs)
  return {
    wallSeconds: reading.wallSeconds - agoMs / 1000,
    monotonicMs: reading.monotonicMs - agoMs,
  }
}
