/** Times that all processes of a machine agree on, and their conversion to the session's clock. */

import type { Clock } from '../../foundation/clock.ts'
import type { Moment } from '../../tasks/lifecycle.ts'

/** Milliseconds of the machine's monotonic clock; the same in every thread and process. */
export function machineMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}

/** One reading of all clocks, for the conversion of many moments: reading costs more. */
export interface TimeReading extends Moment {
  readonly machineMs: number
}

export function readTime(clock: Clock): TimeReading {
  return { wallSeconds: clock.now(), monotonicMs: clock.monotonicMs(), machineMs: machineMs() }
}

/** A machine time, not later than the reading, in the terms of the clock that was read. */
export function momentOf(reading: TimeReading, atMachineMs: number): Moment {
  const agoMs = Math.max(0, reading.machineMs - atMachineMs)
  return {
    wallSeconds: reading.wallSeconds - agoMs / 1000,
    monotonicMs: reading.monotonicMs - agoMs,
  }
}
