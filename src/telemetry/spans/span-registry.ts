/** All spans of one session. Events open and close them synchronously, at the time of the event. */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import { type BaseEvent, baseFieldNames } from '../../events/event.ts'
import { WorkflowEnded, WorkflowStarted } from '../../events/library-events.ts'
import type { RowHolder, WorkSpan } from '../../events/sink.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { maskSecrets, maskSecretsIn } from '../../foundation/secrets.ts'
import { currentTask } from '../../foundation/task-context.ts'
import { hasEnded, stageOf, stages } from '../../views/lifecycle.ts'
import { extraAttributes, type TaskRow, toStrings } from '../metrics/task-row.ts'
import type { TaskEventFields, TaskTable } from '../metrics/task-table.ts'
import type { Enrichers } from './enrichers.ts'
import { sessionAttributes, toScopeSpan, toSessionSpan } from './finished-span.ts'
import { type SessionIds, toTaskSpan, toWorkSpan } from './finished-span.ts'
import { type ActiveSpans, LiveScope, LiveTask } from './live-span.ts'
import type { SpanIds, SpanMirror, StartedSpan } from './span-mirror.ts'
import type { ScopeSpan } from './span-scope.ts'
import { StoredSpans } from './stored-spans.ts'

const baseFields: ReadonlySet<string> = new Set(baseFieldNames)
/** The stages that are also recorded as events of the task's span. */
const annotatedStages = stages.queued | stages.started

export interface SpanRegistryParts {
  readonly sessionId: string
  readonly traceId: string
  /** The span of the application whose child the session's span is; `null` for a root span. */
  readonly parent: SpanIds | null
  /** The span of the application to which the session's span has a link. */
  readonly link: SpanIds | null
  readonly active: ActiveSpans
  readonly tasks: TaskTable
  readonly enrichers: Enrichers
  readonly mirror: SpanMirror
}

/** The span of a lifecycle event. */
export interface TaskEventSpan {
  readonly record: TaskRow
  /** Whether the event ended the span. */
  readonly isEnd: boolean
}

/** The span of an event that is not a lifecycle event. */
export interface EventSpan extends SpanIds {
  /** The span that the event ended; `null` if it ended none. */
  readonly ended: FinishedSpan | null
}

export class SpanRegistry {
  readonly #parts: SpanRegistryParts
  readonly #session: SessionIds
  readonly #openScopes = new Set<ScopeSpan>()
  readonly #finishedScopes = new StoredSpans()
  readonly #openWorkflows = new Map<string, ScopeSpan>()
  #sessionStart = 0
  #sessionAttributes: JsonObject
  #sessionSpan: FinishedSpan | null = null

  constructor(parts: SpanRegistryParts) {
    this.#parts = parts
    const { sessionId, traceId, parent, link } = parts
    this.#session = { sessionId, traceId, parent, link, spanId: newSpanId() }
    this.#sessionAttributes = sessionAttributes(sessionId)
  }

  get #inSession(): EventSpan {
    const { traceId, spanId } = this.#session
    return { traceId, spanId, ended: null }
  }

  /** The size of the temporary file of spans that are not spans of tasks. */
  get spilledBytes(): number {
    return this.#finishedScopes.spilledBytes
  }

  get sessionSpanId(): string {
    return this.#session.spanId
  }

  /**
   * Applies a lifecycle event to the span of its task. `object` is the event object for enrichers.
   * It may be `null` if there are no enrichers.
   */
  addTaskEvent(
    event: TaskEventFields,
    holder: RowHolder | null,
    object: BaseEvent | null,
  ): TaskEventSpan {
    const { tasks, mirror, enrichers } = this.#parts
    const { task_id: uid } = event
    const stage = stageOf(event.event_type)
    const known = (holder?.telemetryRow as TaskRow | null | undefined) ?? tasks.find(uid)
    if (known !== undefined && hasEnded(known.passed)) return { record: known, isEnd: false }
    const record = known ?? this.#openRecord(uid, event)
    if (holder !== null) holder.telemetryRow = record
    if (stage === stages.created && object !== null && enrichers.hasAny) {
      record.enrich(enrichers.enrich(object))
    }
    if (known === undefined) this.#openTask(record)
    const { passed } = record
    const isEnd = tasks.apply(record, event, stage)
    if (((record.passed ^ passed) & annotatedStages) !== 0) {
      mirror.annotated(record, () => toAnnotation(event, extraAttributes(event)))
    }
    if (isEnd) mirror.ended(record, () => this.toSpan(record))
    return { record, isEnd }
  }

  /** Finds the span of an event that is not a lifecycle event of a task. May open or end a span. */
  addEvent(event: BaseEvent): EventSpan {
    const { event_type: type } = event
    if (type === 'SessionStarted') this.#openSession(event)
    if (type === 'SessionEnded') return this.#closeSession(event)
    if (type === 'SessionStarted' || type === 'ResourceUpdate') {
      return this.#inSession
    }
    if (event instanceof WorkflowStarted) return this.#startWorkflow(event)
    const ended = event instanceof WorkflowEnded ? this.#endWorkflow(event) : null
    if (ended !== null) return ended
    const { traceId, spanId } = this.#findSpan(event)
    return { traceId, spanId, ended: null }
  }

  /**
   * Opens a child of the active span, which may be a span of the application. If no span is active,
   * opens a child of the session's span.
   */
  openScope(name: string, attributes: object, time: number): ScopeSpan {
    return this.#openScope(name, attributes, time, this.#activeIds() ?? this.#session)
  }

  runInScope<T>(scope: ScopeSpan, callback: () => T): T {
    const { active, mirror } = this.#parts
    return active.runScope(new LiveScope(this, scope, mirror), callback)
  }

  runInTask<T>(uid: string, callback: () => T): T {
    const { active, tasks } = this.#parts
    const record = tasks.findOpen(uid)
    return record === undefined ? callback() : active.runTask(this.#liveTask(record), callback)
  }

  /** Closes a scope. Returns its finished span, or `null` if `closeOpen` has already ended it. */
  closeScope(scope: ScopeSpan, time: number, failure: string | null): FinishedSpan | null {
    if (!this.#openScopes.delete(scope)) return null
    scope.hasEnded = true
    const span = toScopeSpan(scope, time, failure === null ? null : maskSecrets(failure))
    this.#finishedScopes.add(span)
    this.#parts.mirror.ended(scope, () => span)
    return span
  }

  addWork(work: WorkSpan): FinishedSpan {
    const task = work.taskId === null ? undefined : this.#parts.tasks.find(work.taskId)
    const { traceId } = this.#session
    const parent = { traceId, spanId: task?.spanId ?? this.#session.spanId }
    const { name, startTime: time } = work
    const attributes = this.#startSpan(work.spanId, work.attributes, { parent, name, time })
    const span = toWorkSpan({ ...work, attributes, traceId, parentSpanId: parent.spanId })
    this.#finishedScopes.add(span)
    this.#parts.mirror.ended(work, () => span)
    return span
  }

  annotate(event: BaseEvent): void {
    const annotation = toAnnotation(event, { ...extraFields(event), ...event.attributes })
    const active = this.#parts.active.find(this) ?? this.#runningTask()
    active?.annotate(annotation)
  }

  /** Ends every open span except the session's, and returns them. */
  closeOpen(time: number): FinishedSpan[] {
    const endedSpans: FinishedSpan[] = []
    for (const scope of this.#openScopes) {
      const span = this.closeScope(scope, time, null)
      if (span !== null) endedSpans.push(span)
    }
    for (const record of this.#parts.tasks.openRecords()) {
      this.#parts.tasks.abandon(record, time)
      const span = this.toSpan(record)
      this.#parts.mirror.ended(record, () => span)
      endedSpans.push(span)
    }
    return endedSpans
  }

  toSpan(record: TaskRow): FinishedSpan {
    return toTaskSpan(record, this.#session)
  }

  /**
   * Yields the session's span, then the spans of tasks, then those of scopes. Tasks and scopes are
   * in the order in which they ended.
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

  #startSpan(spanId: string, own: JsonObject, span: Omit<StartedSpan, 'attributes'>): JsonObject {
    const added = this.#parts.mirror.started({ spanId }, () => ({ ...span, attributes: own }))
    return added === null ? own : { ...own, ...added }
  }

  #openRecord(uid: string, event: TaskEventFields): TaskRow {
    const record = this.#parts.tasks.open(uid, event)
    const { workflow_id: workflowId } = event.attributes
    if (typeof workflowId !== 'string') return record
    record.workflowId = workflowId
    record.parentSpanId = this.#workflowSpanId(workflowId) ?? null
    return record
  }

  #openTask(record: TaskRow): void {
    const added = this.#parts.mirror.started(record, () => ({
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

  #closeSession(event: BaseEvent): EventSpan {
    if (this.#sessionSpan !== null) return this.#inSession
    const { spanId } = this.#session
    const attributes = this.#sessionAttributes
    const span = toSessionSpan(this.#session, attributes, this.#sessionStart, event.event_time)
    this.#sessionSpan = span
    this.#parts.mirror.ended({ spanId }, () => span)
    return { ...this.#inSession, ended: span }
  }

  #startWorkflow(event: InstanceType<typeof WorkflowStarted>): EventSpan {
    const { workflow_id, session_id } = event
    const { traceId } = this.#session
    const outer = this.#workflowSpanId(event.parent_workflow_id)
    const spanId = outer ?? (this.#sessionActiveIds() ?? this.#session).spanId
    const attributes = { session_id, workflow_id }
    const parent = { traceId, spanId }
    const scope = this.#openScope('workflow', attributes, event.event_time, parent)
    this.#openWorkflows.set(workflow_id, scope)
    return { traceId: this.#session.traceId, spanId: scope.spanId, ended: null }
  }

  /**
   * Ends the span of a workflow. Returns `null` if the workflow has no span, because telemetry was
   * started after the workflow.
   */
  #endWorkflow(event: InstanceType<typeof WorkflowEnded>): EventSpan | null {
    const { workflow_id, error_message: failure } = event
    const scope = this.#openWorkflows.get(workflow_id)
    if (scope === undefined) return null
    this.#openWorkflows.delete(workflow_id)
    const text = typeof failure === 'string' ? failure : null
    const ended = this.closeScope(scope, event.event_time, text)
    return { traceId: this.#session.traceId, spanId: scope.spanId, ended }
  }

  #workflowSpanId(workflowId: unknown): string | undefined {
    return typeof workflowId === 'string' ? this.#openWorkflows.get(workflowId)?.spanId : undefined
  }

  #findSpan({ task_id: uid, event_type: type }: BaseEvent): SpanIds {
    const { traceId } = this.#session
    const record = uid === null ? undefined : this.#parts.tasks.findOpen(uid)
    if (record !== undefined) return { traceId, spanId: record.spanId }
    // Events of tutti ignore the application's active span, because tutti may emit them while
    // unrelated application code runs.
    const active = type.startsWith('tutti.') ? this.#sessionActiveIds() : this.#activeIds()
    return active ?? this.#session
  }

  #activeIds(): SpanIds | null {
    return this.#parts.active.find(this) ?? this.#runningTask()
  }

  #sessionActiveIds(): SpanIds | null {
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

function extraFields(event: BaseEvent): JsonObject {
  const fields = Object.entries(event).filter(([name]) => !baseFields.has(name))
  return toJsonObject(Object.fromEntries(fields))
}

function toAnnotation(
  event: { readonly event_type: string; readonly event_time: number },
  attributes: JsonObject,
): SpanAnnotation {
  return { name: event.event_type, time: event.event_time, attributes: toStrings(attributes) }
}
