/**
 * All spans of one session. They are opened and closed synchronously in `emit`, with the times of
 * the events.
 */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import { type BaseEvent, baseFieldNames } from '../../events/event.ts'
import { WorkflowEnded, WorkflowStarted } from '../../events/library-events.ts'
import type { WorkSpan } from '../../events/sink.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { maskSecrets, maskSecretsIn } from '../../foundation/secrets.ts'
import { currentTask } from '../../foundation/task-context.ts'
import { hasEnded, stageOf, stages } from '../../views/lifecycle.ts'
import { extraAttributes, type TaskRow, toStrings } from '../metrics/task-row.ts'
import type { TaskTable } from '../metrics/task-table.ts'
import type { Enrichers } from './enrichers.ts'
import { Envelope } from './envelope.ts'
import { sessionAttributes, toScopeSpan, toSessionSpan } from './finished-span.ts'
import { type SessionIds, toTaskSpan, toWorkSpan } from './finished-span.ts'
import { type ActiveSpans, LiveScope, LiveTask } from './live-span.ts'
import type { SpanMirror, StartedSpan } from './span-mirror.ts'
import type { SpanIds } from './span-ids.ts'
import type { ScopeSpan } from './span-scope.ts'

const baseNames: ReadonlySet<string> = new Set(baseFieldNames)
/** The stages that are also recorded as events of the task's span. */
const annotatedStages = stages.queued | stages.started

export interface SpanBookParts {
  readonly sessionId: string
  /** The session's trace, and the application's span that is its parent or linked to it. */
  readonly traceId: string
  readonly parent: SpanIds | null
  readonly link: SpanIds | null
  readonly active: ActiveSpans
  readonly tasks: TaskTable
  readonly enrichers: Enrichers
  readonly mirror: SpanMirror
}

export class SpanBook {
  readonly #parts: SpanBookParts
  readonly #session: SessionIds
  readonly #openScopes = new Set<ScopeSpan>()
  readonly #finishedScopes: FinishedSpan[] = []
  readonly #openWorkflows = new Map<string, ScopeSpan>()
  #sessionStart = 0
  #sessionAttributes: JsonObject
  #sessionSpan: FinishedSpan | null = null

  constructor(parts: SpanBookParts) {
    this.#parts = parts
    const { sessionId, traceId, parent, link } = parts
    this.#session = { sessionId, traceId, parent, link, spanId: newSpanId() }
    this.#sessionAttributes = sessionAttributes(sessionId)
  }

  get sessionSpanId(): string {
    return this.#session.spanId
  }

  /** Opens or closes the spans of an event, and finds the span that the event belongs to. */
  admit(event: BaseEvent): Envelope {
    const { event_type: type, task_id: uid } = event
    const stage = stageOf(type)
    if (stage !== 0 && uid !== null) return this.#admitTaskEvent(event, uid, stage)
    if (type === 'SessionStarted') this.#openSession(event)
    if (type === 'SessionEnded') return this.#closeSession(event)
    if (type === 'SessionStarted' || type === 'ResourceUpdate') {
      return new Envelope(event, this.#session.spanId)
    }
    if (event instanceof WorkflowStarted) return this.#startWorkflow(event)
    const ended = event instanceof WorkflowEnded ? this.#endWorkflow(event) : null
    if (ended !== null) return ended
    const { traceId, spanId } = this.#spanOfCustom(event)
    return new Envelope(event, spanId, null, traceId === this.#session.traceId ? null : traceId)
  }

  /**
   * Opens a span as a child of the active span, which may be the application's, or of the
   * session's.
   */
  openScope(name: string, attributes: object, time: number): ScopeSpan {
    return this.#openScope(name, attributes, time, this.#activeIds() ?? this.#session)
  }

  /** Runs the callback with the scope's span as the active span. */
  runInScope<T>(scope: ScopeSpan, callback: () => T): T {
    const { active, mirror } = this.#parts
    return active.runScope(new LiveScope(this, scope, mirror), callback)
  }

  /** Runs a task's code with the task's span as the active span, if the task is known. */
  runInTask<T>(uid: string, callback: () => T): T {
    const { active, tasks } = this.#parts
    const record = tasks.findOpen(uid)
    return record === undefined ? callback() : active.runTask(this.#liveTask(record), callback)
  }

  /** Returns the finished span, or `null` if `closeOpen` has already ended it. */
  closeScope(scope: ScopeSpan, time: number, failure: string | null): FinishedSpan | null {
    if (!this.#openScopes.delete(scope)) return null
    scope.hasEnded = true
    const span = toScopeSpan(scope, time, failure === null ? null : maskSecrets(failure))
    this.#finishedScopes.push(span)
    this.#parts.mirror.ended(scope.spanId, () => span)
    return span
  }

  /** Adds a span of finished work as a child of its task's span, or else of the session's span. */
  addWork(work: WorkSpan): FinishedSpan {
    const task = work.taskId === null ? undefined : this.#parts.tasks.find(work.taskId)
    const { traceId } = this.#session
    const parent = { traceId, spanId: task?.spanId ?? this.#session.spanId }
    const { name, startTime: time } = work
    const attributes = this.#startSpan(work.spanId, work.attributes, { parent, name, time })
    const span = toWorkSpan({ ...work, attributes }, traceId, parent.spanId)
    this.#finishedScopes.push(span)
    this.#parts.mirror.ended(work.spanId, () => span)
    return span
  }

  /** Records the event on the active span. Does nothing without an active span. */
  annotate(event: BaseEvent): void {
    const annotation = toAnnotation(event, { ...ownFields(event), ...event.attributes })
    const active = this.#parts.active.find(this) ?? this.#runningTask()
    active?.annotate(annotation)
  }

  /** Ends every open span except the session's, and returns them. */
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

  toSpan(record: TaskRow): FinishedSpan {
    return toTaskSpan(record, this.#session)
  }

  /** The session's span, then tasks, then scopes, both in the order in which they ended. */
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

  #openScope(givenName: string, given: object, time: number, parent: SpanIds): ScopeSpan {
    const name = maskSecrets(givenName)
    const spanId = newSpanId()
    const masked = maskSecretsIn(toJsonObject(given))
    const scope: ScopeSpan = {
      spanId,
      traceId: parent.traceId,
      parentSpanId: parent.spanId,
      name,
      startTime: time,
      attributes: this.#startSpan(spanId, masked, { parent, name, time }),
      annotations: [],
      hasEnded: false,
    }
    this.#openScopes.add(scope)
    return scope
  }

  /** Returns the attributes of the span: its own and those that span processors added. */
  #startSpan(spanId: string, own: JsonObject, span: Omit<StartedSpan, 'attributes'>): JsonObject {
    const added = this.#parts.mirror.started(spanId, () => ({ ...span, attributes: own }))
    return added === null ? own : { ...own, ...added }
  }

  #admitTaskEvent(event: BaseEvent, uid: string, stage: number): Envelope {
    const { tasks, mirror } = this.#parts
    const known = tasks.find(uid)
    if (known !== undefined && hasEnded(known.passed)) return new Envelope(event, known.spanId)
    const record = known ?? this.#openRecord(uid, event)
    if (stage === stages.created) record.enrich(this.#parts.enrichers.enrich(event))
    if (known === undefined) this.#openTask(record)
    const { passed } = record
    const isEnd = tasks.apply(record, event, stage)
    if (((record.passed ^ passed) & annotatedStages) !== 0) {
      mirror.annotated(record.spanId, () => toAnnotation(event, extraAttributes(event.attributes)))
    }
    if (!isEnd) return new Envelope(event, record.spanId)
    mirror.ended(record.spanId, () => this.toSpan(record))
    return new Envelope(event, record.spanId, record)
  }

  #openRecord(uid: string, event: BaseEvent): TaskRow {
    const record = this.#parts.tasks.open(uid, event)
    const { workflow_id: workflowId } = event.attributes
    if (typeof workflowId !== 'string') return record
    record.workflowId = workflowId
    record.parentSpanId = this.#workflowSpanId(workflowId) ?? null
    return record
  }

  #openTask(record: TaskRow): void {
    const added = this.#parts.mirror.started(record.spanId, () => ({
      parent: {
        traceId: this.#session.traceId,
        spanId: record.parentSpanId ?? this.#session.spanId,
      },
      name: 'task',
      time: record.startTime,
      attributes: this.toSpan(record).attributes,
    }))
    record.enrich(added)
  }

  #openSession(event: BaseEvent): void {
    const { event_time: time } = event
    const { spanId, parent } = this.#session
    this.#sessionStart = time
    const own = this.#sessionAttributes
    this.#sessionAttributes = this.#startSpan(spanId, own, { parent, name: 'session', time })
  }

  #closeSession(event: BaseEvent): Envelope {
    const { spanId } = this.#session
    if (this.#sessionSpan !== null) return new Envelope(event, spanId)
    const attributes = this.#sessionAttributes
    const span = toSessionSpan(this.#session, attributes, this.#sessionStart, event.event_time)
    this.#sessionSpan = span
    this.#parts.mirror.ended(spanId, () => span)
    return new Envelope(event, spanId, span)
  }

  #startWorkflow(event: InstanceType<typeof WorkflowStarted>): Envelope {
    const { workflow_id, session_id } = event
    const { traceId } = this.#session
    const outer = this.#workflowSpanId(event.parent_workflow_id)
    const spanId = outer ?? (this.#ownActiveIds() ?? this.#session).spanId
    const attributes = { session_id, workflow_id }
    const parent = { traceId, spanId }
    const scope = this.#openScope('workflow', attributes, event.event_time, parent)
    this.#openWorkflows.set(workflow_id, scope)
    return new Envelope(event, scope.spanId)
  }

  /** `null` if telemetry was started after the workflow, whose span is then unknown. */
  #endWorkflow(event: InstanceType<typeof WorkflowEnded>): Envelope | null {
    const { workflow_id, error_message: failure } = event
    const scope = this.#openWorkflows.get(workflow_id)
    if (scope === undefined) return null
    this.#openWorkflows.delete(workflow_id)
    const text = typeof failure === 'string' ? failure : null
    const ended = this.closeScope(scope, event.event_time, text)
    return new Envelope(event, scope.spanId, ended)
  }

  #workflowSpanId(workflowId: unknown): string | undefined {
    return typeof workflowId === 'string' ? this.#openWorkflows.get(workflowId)?.spanId : undefined
  }

  #spanOfCustom({ task_id: uid, event_type: type }: BaseEvent): SpanIds {
    const { traceId } = this.#session
    const record = uid === null ? undefined : this.#parts.tasks.findOpen(uid)
    if (record !== undefined) return { traceId, spanId: record.spanId }
    // Ignores the application's active span, because the library may emit events while unrelated
    // application code runs.
    const active = type.startsWith('tutti.') ? this.#ownActiveIds() : this.#activeIds()
    return active ?? this.#session
  }

  #activeIds(): SpanIds | null {
    return this.#parts.active.find(this) ?? this.#runningTask()
  }

  /** The active ids, ignoring the application's spans and scopes in their traces. */
  #ownActiveIds(): SpanIds | null {
    const active = this.#parts.active.find(this) ?? this.#runningTask()
    return active?.owner === this && active.traceId === this.#session.traceId ? active : null
  }

  #runningTask(): LiveTask | null {
    const uid = currentTask()?.uid
    const record = uid === undefined ? undefined : this.#parts.tasks.findOpen(uid)
    return record === undefined ? null : this.#liveTask(record)
  }

  #liveTask(record: TaskRow): LiveTask {
    return new LiveTask(this, this.#session.traceId, record, this.#parts.mirror)
  }
}

/** The fields of an event that `BaseEvent` does not have. */
function ownFields(event: BaseEvent): JsonObject {
  const fields = Object.entries(event).filter(([name]) => !baseNames.has(name))
  return toJsonObject(Object.fromEntries(fields))
}

function toAnnotation(event: BaseEvent, attributes: JsonObject): SpanAnnotation {
  return { name: event.event_type, time: event.event_time, attributes: toStrings(attributes) }
}
