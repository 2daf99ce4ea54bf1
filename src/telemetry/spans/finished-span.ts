/** Converts tasks, scopes, work of backends and the session to finished spans. Pure. */

import type { FinishedSpan, SpanAnnotation, SpanLink } from '../../checkpoint/format.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { type JsonObject, type JsonValue, toJsonObject } from '../../foundation/json-value.ts'
import type { TaskRow } from '../metrics/task-row.ts'
import type { SpanIds } from './span-mirror.ts'
import type { ScopeSpan } from './span-scope.ts'

/** The backend name in the session's own events and span. */
export const sessionBackend = 'tutti'

/**
 * The ids of the session's span, and the span of the application that is its parent or its link.
 */
export interface SessionIds extends SpanIds {
  readonly sessionId: string
  readonly parent: SpanIds | null
  readonly link: SpanIds | null
}

export function toTaskSpan(record: TaskRow, session: SessionIds): FinishedSpan {
  const { startTime, endTime } = record
  return {
    name: 'task',
    span_id: record.spanId,
    trace_id: session.traceId,
    parent_span_id: record.parentSpanId ?? session.spanId,
    start_time: startTime,
    end_time: endTime,
    duration_ms: record.milliseconds,
    status_code: record.status === null ? 'UNSET' : statusCodes[record.status],
    status_description: record.errorType,
    attributes: taskSpanAttributes(record, session.sessionId),
    events: taskSpanEvents(record),
  }
}

const statusCodes = { completed: 'OK', failed: 'ERROR', canceled: 'UNSET' } as const

function taskSpanAttributes(record: TaskRow, sessionId: string): JsonObject {
  const attributes: Record<string, JsonValue> = {
    session_id: sessionId,
    backend: record.backend,
    task_id: record.uid,
    executable: record.executable,
    task_type: record.taskType,
  }
  if (record.workflowId !== null) attributes['workflow_id'] = record.workflowId
  if (record.status !== null) attributes['status'] = record.status
  if (record.errorType !== null) attributes['error_type'] = record.errorType
  return record.enriched === null ? attributes : { ...record.enriched, ...attributes }
}

function taskSpanEvents(record: TaskRow): readonly SpanAnnotation[] {
  const events: SpanAnnotation[] = []
  const { queuedTime, queuedAttributes, startedTime, startedAttributes } = record
  if (record.wasQueued) {
    events.push({ name: 'TaskQueued', time: queuedTime, attributes: queuedAttributes })
  }
  if (record.wasRunning) {
    events.push({
      name: 'TaskStarted',
      time: startedTime,
      attributes: startedAttributes,
    })
  }
  if (record.annotations === null) return events
  return [...events, ...record.annotations].toSorted((a, b) => a.time - b.time)
}

interface OpenSpan extends SpanIds {
  readonly name: string
  readonly parentSpanId: string | null
  readonly startTime: number
  readonly attributes: JsonObject
}

function finish(
  span: OpenSpan,
  time: number,
  failure: string | null,
  events: readonly SpanAnnotation[],
  links: readonly (string | SpanLink)[],
): FinishedSpan {
  const endTime = Math.max(time, span.startTime)
  return {
    name: span.name,
    span_id: span.spanId,
    trace_id: span.traceId,
    parent_span_id: span.parentSpanId,
    start_time: span.startTime,
    end_time: endTime,
    duration_ms: (endTime - span.startTime) * 1000,
    status_code: failure === null ? 'UNSET' : 'ERROR',
    status_description: failure,
    attributes: span.attributes,
    events,
    ...(links.length === 0 ? {} : { links }),
  }
}

/** The span without its largest parts, for a span whose text would be too long. */
export const withoutDetails = (span: FinishedSpan): FinishedSpan => ({
  ...span,
  attributes: { truncated: true },
  events: [],
})

/** The span of a scope that the application opened, or of a workflow. */
export const toScopeSpan = (scope: ScopeSpan, time: number, failure: string | null): FinishedSpan =>
  finish(scope, time, failure, scope.annotations, [])

/** The span of finished work that a backend has reported. */
export const toWorkSpan = (work: WorkSpan & OpenSpan): FinishedSpan =>
  finish(work, work.endTime, work.error, [], work.links)

export const sessionAttributes = (sessionId: string): JsonObject =>
  toJsonObject({ session_id: sessionId, backend: sessionBackend })

export function toSessionSpan(
  { traceId, spanId, parent, link }: SessionIds,
  attributes: JsonObject,
  startTime: number,
  time: number,
): FinishedSpan {
  const parentSpanId = parent?.spanId ?? null
  const links = link === null ? [] : [{ trace_id: link.traceId, span_id: link.spanId }]
  const span = { name: 'session', traceId, spanId, parentSpanId, startTime, attributes }
  return finish(span, time, null, [], links)
}
