/** How a checkpoint line is spelled: the one place that knows the file's keys. */

import type { BaseEvent } from '../events/event.ts'
import type { JsonObject } from '../foundation/json-value.ts'

/** Written into SessionStarted's attributes; a reader of another major version should refuse. */
export const checkpointFormat = 'tutti-telemetry/1'

/** An event with the ids of the span it belongs to. */
export interface EventLine {
  readonly section: 'event'
  readonly event_id: string
  readonly event_type: string
  readonly event_time: number
  readonly emit_time: number
  readonly session_id: string
  readonly backend: string
  readonly task_id: string | null
  readonly node_id: string | null
  readonly attributes: JsonObject
  readonly trace_id: string
  readonly span_id: string
  /** An alias of `event_type`. */
  readonly name: string
  readonly [field: string]: unknown
}

/** Each instrument's name with its current value, flat. */
export interface MetricLine {
  readonly section: 'metric'
  readonly checkpoint_time: number
  readonly [instrument: string]: unknown
}

/** Something that happened while a span was open; `time` is wall-clock seconds. */
export interface SpanAnnotation {
  readonly name: string
  readonly time: number
  readonly attributes: JsonObject
}

/** A span that has ended; times are wall-clock seconds. */
export interface FinishedSpan {
  readonly name: string
  readonly span_id: string
  readonly trace_id: string
  readonly parent_span_id: string | null
  readonly start_time: number
  readonly end_time: number
  readonly duration_ms: number
  readonly status_code: 'UNSET' | 'OK' | 'ERROR'
  readonly status_description: string | null
  readonly attributes: JsonObject
  readonly events: readonly SpanAnnotation[]
  /** Ids of other spans of the trace that it has to do with. */
  readonly links?: readonly string[]
}

export interface SpanLine extends FinishedSpan {
  readonly section: 'span'
}

export type CheckpointLine = EventLine | MetricLine | SpanLine

/**
 * Events are plain JSON by construction, so this cannot throw. The ids come first: one cut of the
 * JSON
 * text instead of two halves the garbage of a line.
 */
export function eventLine(event: BaseEvent, traceId: string, spanId: string): string {
  const ids = `"trace_id":"${traceId}","span_id":"${spanId}","name":"${event.event_type}"`
  return `{"section":"event",${ids},${JSON.stringify(event).slice(1)}\n`
}

export function spanLine(span: FinishedSpan): string {
  return `{"section":"span",${JSON.stringify(span).slice(1)}\n`
}

export function metricLine(time: number, values: Readonly<Record<string, number>>): string {
  return `${JSON.stringify({ section: 'metric', checkpoint_time: time, ...values })}\n`
}
