/** The interfaces through which telemetry receives events, spans and measurements. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { BaseEvent } from './event.ts'
import type { Measurement } from './measurement.ts'

/**
 * Receives events. `emit` keeps the order of calls, does not wait, and never throws for a valid
 * event.
 */
export interface EventSink {
  /** Receives one event. */
  emit(event: BaseEvent): void
}

/** A span of finished work. Times are in wall-clock seconds. */
export interface WorkSpan {
  readonly spanId: string
  readonly name: string
  /** The task that the work was done for; `null` for the session. */
  readonly taskId: string | null
  readonly startTime: number
  readonly endTime: number
  readonly attributes: JsonObject
  /** The error message, if the work failed. */
  readonly error: string | null
  /** Ids of linked spans besides the parent. */
  readonly links: readonly string[]
}

/** Receives spans, measurements and counts. No method waits or throws. */
export interface WorkSink {
  /** Adds the span of work that has ended. */
  recordSpan(span: WorkSpan): void
  /** Adds a value to a histogram. */
  recordMeasurement(measurement: Measurement): void
  /** Counts a result that arrived after the end of its task and was dropped. */
  recordLateResult(): void
}
