/**
 * All spans of one session: opened and closed at the door, in `emit`, with the events' own times.
 */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import type { BaseEvent } from '../../events/event.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { currentTask } from '../../foundation/task-context.ts'
import { Envelope } from '../bus.ts'
import type { Enrichers } from './enrichers.ts'
import type { SpanMirror } from './span-mirror.ts'
import { activeScope, type ScopeSpan, toScopeSpan } from './span-scope.ts'
import { beyondTask, type TaskRecord, toStrings, toTaskSpan } from '../metrics/task-record.ts'
import type { TaskTable } from '../metrics/task-table.ts'
import { toWorkSpan } from './work-span.ts'
import { WorkflowSpans } from './workflow-spans.ts'

/** The backend of the session's own events and span. */
export const sessionBackend = 'tutti'

const taskEvents = new Set([
  'TaskCreated',
  'TaskSubmitted',
  'TaskQueued',
  'TaskStarted',
  'TaskCompleted',
  'TaskFailed',
  'TaskCanceled',
])

export interface SpanBookParts {
  readonly sessionId: string
  readonly traceId: string
  readonly tasks: TaskTable
  readonly enrichers: Enrichers
  readonly mirror: SpanMirror
}

export class SpanBook {
  readonly #sessionSpanId = newSpanId()
  readonly #parts: SpanBookParts
  readonly #openScopes = new Set<ScopeSpan>()
  readonly #finishedScopes: FinishedSpan[] = []
  readonly #workflows = new WorkflowSpans(this)
  #sessionStart = 0
  #sessionSpan: FinishedSpan | null = null

  constructor(parts: SpanBookParts) {
    this.#parts = parts
  }

  /** Finds the span an event belongs to, and opens or closes spans as it says. */
  admit(event: BaseEvent): Envelope {
    const { event_type: type, task_id: uid } = event
    if (uid !== null && taskEvents.has(type)) return this.#admitTaskEvent(event, uid)
    if (type === 'SessionStarted') this.#openSession(event)
    if (type === 'SessionEnded') return this.#closeSession(event)
    if (type === 'SessionStarted' || type === 'ResourceUpdate') {
      return new Envelope(event, this.#sessionSpanId)
    }
    return this.#workflows.admit(event) ?? new Envelope(event, this.#spanOfCustom(uid))
  }

  /** Opens a span under the given one, the active one, or the session's. */
  openScope(name: string, attributes: object, time: number, parentSpanId?: string): ScopeSpan {
    const scope: ScopeSpan = {
      spanId: newSpanId(),
      parentSpanId: parentSpanId ?? this.#activeSpanId() ?? this.#sessionSpanId,
      name,
      startTime: time,
      attributes: toJsonObject(attributes),
      annotations: [],
      owner: this,
    }
    this.#openScopes.add(scope)
    this.#parts.mirror.started(scope.spanId, () => ({ ...scope, time }))
    return scope
  }

  /** The finished span, or `null` when it was ended before (by `closeOpen`). */
  closeScope(scope: ScopeSpan, time: number, failure: string | null): FinishedSpan | null {
    if (!this.#openScopes.delete(scope)) return null
    const span = toScopeSpan(scope, this.#parts.traceId, time, failure)
    this.#finishedScopes.push(span)
    this.#parts.mirror.ended(scope.spanId, () => span)
    return span
  }

  /** Takes a span of finished work in, under its task's or the session's. */
  addWork(work: WorkSpan): FinishedSpan {
    const task = work.taskId === null ? undefined : this.#parts.tasks.find(work.taskId)
    const parentSpanId = task?.spanId ?? this.#sessionSpanId
    const span = toWorkSpan(work, this.#parts.traceId, parentSpanId)
    this.#finishedScopes.push(span)
    const { name, startTime: time, attributes } = work
    this.#parts.mirror.started(work.spanId, () => ({ parentSpanId, name, time, attributes }))
    this.#parts.mirror.ended(work.spanId, () => span)
    return span
  }

  /** Records the event on the active span; without one, does nothing. */
  annotate(event: BaseEvent): void {
    const annotation = toAnnotation(event, event.attributes)
    const scope = activeScope(this)
    // Code that outlives its scope finds a span that has ended: it takes nothing more.
    if (scope !== undefined && !this.#openScopes.has(scope)) return
    const record = scope === undefined ? this.#runningTask() : undefined
    scope?.annotations.push(annotation)
    record?.annotate(annotation)
    const spanId = scope?.spanId ?? record?.spanId
    if (spanId !== undefined) this.#parts.mirror.annotated(spanId, () => annotation)
  }

  /** Ends every span that is still open but the session's, and gives them back. */
  closeOpen(time: number): FinishedSpan[] {
    const ended: FinishedSpan[] = []
    for (const scope of this.#openScopes) {
      const span = this.closeScope(scope, time, null)
      if (span !== null) ended.push(span)
    }
    for (const record of this.#parts.tasks.openRecords()) {
      this.#parts.tasks.abandon(record, time)
      const span = this.toSpan(record)
      this.#parts.mirror.ended(record.spanId, () => span)
      ended.push(span)
    }
    return ended
  }

  toSpan(record: TaskRecord): FinishedSpan {
    const { sessionId, traceId } = this.#parts
    return toTaskSpan(record, { sessionId, traceId, spanId: this.#sessionSpanId })
  }

  /**
   * The session's span first, then tasks and then scopes, both in order of their end.
   */
  *finished(): Generator<FinishedSpan> {
    if (this.#sessionSpan !== null) yield this.#sessionSpan
    yield* this.finishedTasks()
    yield* this.#finishedScopes
  }

  *finishedTasks(): Generator<FinishedSpan> {
    for (const record of this.#parts.tasks.records()) {
      if (record.hasEnded) yield this.toSpan(record)
    }
  }

  #admitTaskEvent(event: BaseEvent, uid: string): Envelope {
    const { tasks, mirror } = this.#parts
    const known = tasks.find(uid)
    if (known !== undefined && known.status !== null) {
      return new Envelope(event, known.spanId)
    }
    const record = known ?? this.#openRecord(uid, event)
    const { wasQueued, wasRunning } = record
    const isEnd = tasks.apply(record, event)
    if (event.event_type === 'TaskCreated') record.enriched = this.#parts.enrichers.enrich(event)
    if (known === undefined) this.#openTask(record)
    if (record.wasQueued !== wasQueued || record.wasRunning !== wasRunning) {
      mirror.annotated(record.spanId, () => toAnnotation(event, beyondTask(event.attributes)))
    }
    if (!isEnd) return new Envelope(event, record.spanId)
    mirror.ended(record.spanId, () => this.toSpan(record))
    return new Envelope(event, record.spanId, record)
  }

  #openRecord(uid: string, event: BaseEvent): TaskRecord {
    const record = this.#parts.tasks.open(uid, event)
    const { workflow_id: workflowId } = event.attributes
    if (typeof workflowId !== 'string') return record
    record.workflowId = workflowId
    record.parentSpanId = this.#workflows.spanIdOf(workflowId) ?? null
    return record
  }

  #openTask(record: TaskRecord): void {
    this.#parts.mirror.started(record.spanId, () => ({
      parentSpanId: record.parentSpanId ?? this.#sessionSpanId,
      name: 'task',
      time: record.startTime,
      attributes: this.toSpan(record).attributes,
    }))
  }

  #openSession(event: BaseEvent): void {
    this.#sessionStart = event.event_time
    this.#parts.mirror.started(this.#sessionSpanId, () => ({
      parentSpanId: null,
      name: 'session',
      time: event.event_time,
      attributes: this.#sessionAttributes(),
    }))
  }

  #closeSession(event: BaseEvent): Envelope {
    if (this.#sessionSpan !== null) return new Envelope(event, this.#sessionSpanId)
    const endTime = Math.max(event.event_time, this.#sessionStart)
    const span: FinishedSpan = {
      name: 'session',
      span_id: this.#sessionSpanId,
      trace_id: this.#parts.traceId,
      parent_span_id: null,
      start_time: this.#sessionStart,
      end_time: endTime,
      duration_ms: (endTime - this.#sessionStart) * 1000,
      status_code: 'UNSET',
      status_description: null,
      attributes: this.#sessionAttributes(),
      events: [],
    }
    this.#sessionSpan = span
    this.#parts.mirror.ended(this.#sessionSpanId, () => span)
    return new Envelope(event, this.#sessionSpanId, span)
  }

  #sessionAttributes() {
    return toJsonObject({ session_id: this.#parts.sessionId, backend: sessionBackend })
  }

  #spanOfCustom(uid: string | null): string {
    const record = uid === null ? undefined : this.#parts.tasks.findOpen(uid)
    return record?.spanId ?? this.#activeSpanId() ?? this.#sessionSpanId
  }

  #activeSpanId(): string | undefined {
    return activeScope(this)?.spanId ?? this.#runningTask()?.spanId
  }

  #runningTask(): TaskRecord | undefined {
    const uid = currentTask()
    return uid === undefined ? undefined : this.#parts.tasks.findOpen(uid)
  }
}

function toAnnotation(event: BaseEvent, attributes: JsonObject): SpanAnnotation {
  return { name: event.event_type, time: event.event_time, attributes: toStrings(attributes) }
}
