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

/**
 * A lifecycle event of a task as plain fields, without those that all events of a session share. An
 * event object is created from it only if a subscriber needs one.
 */
export interface TaskChange {
  readonly event_type: TaskEventType
  readonly event_time: number
  /** Never before `event_time`. */
  readonly emit_time: number
  readonly backend: string
  readonly task_id: string
  readonly node_id: string | null
  /** Frozen, with secrets masked. So is `own`. */
  readonly attributes: JsonObject
  /** Further attributes, which only this event has; `null` for none. */
  readonly own: JsonObject | null
  /** Used for terminal events only. */
  readonly duration_seconds: number
  /** Used for TaskFailed only. */
  readonly error_type: string
  /** The same object for all events of a task; `null` if the emitter has none. */
  readonly holder: RowHolder | null
}

/** Gives telemetry direct access to its data about a task, without a lookup by uid. */
export interface RowHolder {
  telemetryRow: object | null
}

/** Returns all attributes of an event. Those of `own` take precedence. */
export const allAttributes = (event: Pick<TaskChange, 'attributes' | 'own'>): JsonObject =>
  event.own === null ? event.attributes : Object.freeze({ ...event.attributes, ...event.own })

/** The types of a task's lifecycle events. */
export type TaskEventType =
  | 'TaskCreated'
  | 'TaskSubmitted'
  | 'TaskQueued'
  | 'TaskStarted'
  | 'TaskCompleted'
  | 'TaskFailed'
  | 'TaskCanceled'

/** Receives lifecycle events. `recordTask` keeps the order of calls, and never waits or throws. */
export interface TaskSink {
  /** Receives one lifecycle event of a task. */
  recordTask(change: TaskChange): void
}

/**
 * Attributes that many events share. The record stores their text once, while other attributes are
 * formatted for each event.
 */
export const sharedAttributes = new WeakSet<JsonObject>()

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
  /** The ids of linked spans; the parent is not included. */
  readonly links: readonly string[]
}

/** Receives spans, measurements and counts. No method waits or throws. */
export interface WorkSink {
  /** Adds a span of finished work. */
  recordSpan(span: WorkSpan): void
  /** Adds a value to a histogram. */
  recordMeasurement(measurement: Measurement): void
  /** Counts a result that arrived after the end of its task and was dropped. */
  recordLateResult(): void
}
