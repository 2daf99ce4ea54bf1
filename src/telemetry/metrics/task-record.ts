/**
 * One task as telemetry remembers it: small, plain, and enough to make its span and its metric
 * points.
 */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import type { BaseEvent } from '../../events/event.ts'
import { emptyAttributes, type JsonObject, type JsonValue } from '../../foundation/json-value.ts'
import type { Indexed } from '../../runtime/indexed-set.ts'

export type SpanStatus = 'completed' | 'failed' | 'canceled'

/** A time that has not come; 0 is a time like any other. */
const never = Number.NaN

/** Kept for every task until the manager is gone, so each field counts. */
export class TaskRecord implements Indexed {
  setIndex = -1
  readonly uid: string
  readonly spanId: string
  readonly startTime: number
  backend = ''
  executable = ''
  taskType = ''
  queuedTime = never
  /** What TaskQueued said beyond `executable` and `task_type`, as strings. */
  queuedAttributes: JsonObject = emptyAttributes
  startedTime = never
  /** What TaskStarted said beyond `executable` and `task_type`, such as the worker, as strings. */
  startedAttributes: JsonObject = emptyAttributes
  /** When the span ended: with the task, or with telemetry. */
  endTime = never
  durationSeconds = 0
  wasSubmitted = false
  status: SpanStatus | null = null
  errorType: string | null = null
  /** The workflow that it belongs to, and that one's span. */
  workflowId: string | null = null
  parentSpanId: string | null = null
  /** What enrichers added; `null` for most tasks. */
  enriched: JsonObject | null = null
  /** What `annotateCurrentSpan` added; `null` for most tasks. */
  annotations: SpanAnnotation[] | null = null

  constructor(uid: string, spanId: string, startTime: number) {
    this.uid = uid
    this.spanId = spanId
    this.startTime = startTime
  }

  /** RUNNING was recorded. */
  get wasRunning(): boolean {
    return !Number.isNaN(this.startedTime)
  }

  get wasQueued(): boolean {
    return !Number.isNaN(this.queuedTime)
  }

  get hasEnded(): boolean {
    return !Number.isNaN(this.endTime)
  }

  /** Takes over what an event says about the task itself. */
  describe(event: BaseEvent): void {
    if (event.backend !== '') this.backend = event.backend
    const { executable, task_type: taskType } = event.attributes
    if (typeof executable === 'string') this.executable = executable
    if (typeof taskType === 'string') this.taskType = taskType
  }

  annotate(annotation: SpanAnnotation): void {
    this.annotations ??= []
    this.annotations.push(annotation)
  }
}

/** The span of a task, as it stands. */
export function toTaskSpan(
  record: TaskRecord,
  session: { readonly sessionId: string; readonly traceId: string; readonly spanId: string },
): FinishedSpan {
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

function taskSpanAttributes(record: TaskRecord, sessionId: string): JsonObject {
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

function taskSpanEvents(record: TaskRecord): readonly SpanAnnotation[] {
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

/** What the attributes say beyond the span's own; sessions share one object among many tasks. */
const remembered = new Map<JsonObject, JsonObject>()
const mostRemembered = 64

const ofTheSpan = new Set(['executable', 'task_type', 'workflow_id'])

/** Most events say no more than `executable` and `task_type`, which the span has: keep nothing. */
export function beyondTask(attributes: JsonObject): JsonObject {
  const known = remembered.get(attributes)
  if (known !== undefined) return known
  const beyond = withoutTask(attributes)
  if (remembered.size === mostRemembered) remembered.clear()
  remembered.set(attributes, beyond)
  return beyond
}

function withoutTask(attributes: JsonObject): JsonObject {
  for (const key in attributes) {
    if (ofTheSpan.has(key)) continue
    const beyond = Object.entries(attributes).filter(([name]) => !ofTheSpan.has(name))
    return toStrings(Object.fromEntries(beyond))
  }
  return emptyAttributes
}

/** A span event's attributes: every value as a string, as the specification has it. */
export function toStrings(attributes: JsonObject): JsonObject {
  if (attributes === emptyAttributes) return attributes
  const strings: Record<string, string> = {}
  for (const [key, value] of Object.entries(attributes)) {
    strings[key] = typeof value === 'string' ? value : JSON.stringify(value)
  }
  return strings
}
