/** The ports to telemetry: for events, and for spans and measurements of backends. */

import type { JsonObject } from '../foundation/json-value.ts'
import type { BaseEvent } from './event.ts'
import type { Measurement } from './measurement.ts'

/**
 * Receives events. `emit` neither waits nor throws for a valid event, and keeps the order of calls.
 */
export interface EventSink {
  /** Takes one event. */
  emit(event: BaseEvent): void
}

/** A span of finished work, with its times in wall-clock seconds. */
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
  /** Ids of linked spans, in addition to the parent. */
  readonly links: readonly string[]
}

/** Receives records other than events. No call waits or throws. */
export interface WorkSink {
  /** Adds the span of work that has ended. */
  recordSpan(span: WorkSpan): void
  /** Adds a value to a histogram. */
  recordMeasurement(measurement: Measurement): void
  /** Counts a result that arrived after the end of its task and was dropped. */
  recordLateResult(): void
}
