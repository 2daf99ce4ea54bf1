/** The ports through which events, spans and measurements leave whoever makes them. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { BaseEvent } from './event.ts'
import type { Measurement } from './measurement.ts'

/**
 * Takes events. `emit` neither waits nor throws for a valid event, and keeps the order of calls.
 */
export interface EventSink {
  emit(event: BaseEvent): void
}

/** A span of work that is over, with its own times in wall-clock seconds. */
export interface WorkSpan {
  readonly spanId: string
  readonly name: string
  /** The task that it was done for; without one, or once that has ended, it is the session's. */
  readonly taskId: string | null
  readonly startTime: number
  readonly endTime: number
  readonly attributes: JsonObject
  /** What went wrong, if anything. */
  readonly error: string | null
  /** Spans that it has to do with, beside its parent. */
  readonly links: readonly string[]
}

/** Takes what backends tell about work beyond the events. Neither call waits nor throws. */
export interface WorkSink {
  recordSpan(span: WorkSpan): void
  recordMeasurement(measurement: Measurement): void
}
