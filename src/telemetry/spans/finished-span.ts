/** Converts tasks, scopes, work of backends and the session to finished spans. Pure. */

import type { FinishedSpan, SpanAnnotation, SpanLink } from '../../checkpoint/format.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { type JsonObject, type JsonValue, toJsonObject } from '../../foundation/json-value.ts'
import type { TaskRow } from '../metrics/task-row.ts'
import type { SpanIds } from './span-ids.ts'
import type { ScopeSpan } from './span-scope.ts'

/** The backend of the session's own events and span. */
export const sessionBackend = 'tutti'

/** The session's span, and the application's span that is its parent or linked to it. */
export interface SessionIds extends SpanIds {
  readonly sessionId: string
  readonly parent: SpanIds | null
  readonly link: SpanIds | null
}

/** The span of a task in its current state. */
export function toTaskSpan(record: TaskRow, session: SessionIds): FinishedSpan {
  const { startTime, endTime } = record
  return {
    name: 'task',
    span_id: record.spanId,
    trace_id: session.traceId,
    parent_span_id: record.parentSpanId ?? session.spanId,
    start_time: startTime,
    end_time: endTime,
    duration_ms: Math.max(0, (endTime - startTime) * 1000),
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

/** The span of a scope that the application opened, or of a workflow. */
export function toScopeSpan(scope: ScopeSpan, time: number, failure: string | null): FinishedSpan {
  const endTime = Math.max(time, scope.startTime)
  return {
    name: scope.name,
    span_id: scope.spanId,
    trace_id: scope.traceId,
    parent_span_id: scope.parentSpanId,
    start_time: scope.startTime,
    end_time: endTime,
    duration_ms: (endTime - scope.startTime) * 1000,
    status_code: failure === null ? 'UNSET' : 'ERROR',
    status_description: failure,
    attributes: scope.attributes,
    events: scope.annotations,
  }
}

/** The span of work that a backend reported once it was finished. */
export function toWorkSpan(work: WorkSpan, traceId: string, parentSpanId: string): FinishedSpan {
  const endTime = Math.max(work.endTime, work.startTime)
  return {
    name: work.name,
    span_id: work.spanId,
    trace_id: traceId,
    parent_span_id: parentSpanId,
    start_time: work.startTime,
    end_time: endTime,
    duration_ms: (endTime - work.startTime) * 1000,
    status_code: work.error === null ? 'UNSET' : 'ERROR',
    status_description: work.error,
    attributes: work.attributes,
    events: [],
    ...(work.links.length === 0 ? {} : { links: work.links }),
  }
}

const toLink = ({ traceId, spanId }: SpanIds): SpanLink => ({
  trace_id: traceId,
  span_id: spanId,
})

export const sessionAttributes = (sessionId: string): JsonObject =>
  toJsonObject({ session_id: sessionId, backend: sessionBackend })

export function toSessionSpan(
  session: SessionIds,
  attributes: JsonObject,
  startTime: number,
  time: number,
): FinishedSpan {
  const endTime = Math.max(time, startTime)
  return {
    name: 'session',
    span_id: session.spanId,
    trace_id: session.traceId,
    parent_span_id: session.parent?.spanId ?? null,
    start_time: startTime,
    end_time: endTime,
    duration_ms: (endTime - startTime) * 1000,
    status_code: 'UNSET',
    status_description: null,
    attributes,
    events: [],
    ...(session.link === null ? {} : { links: [toLink(session.link)] }),
  }
}
