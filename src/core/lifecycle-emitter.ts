/** Emits an event for each state change of a task. The `Ledger` decides the changes. */

import type { AttemptFacts, NodeNotice, Notice } from '../backends/backend.ts'
import { BaseEvent, type EventClass, stampEvent, type TrustedFields } from '../events/event.ts'
import { AttemptStarted, TaskAttempt } from '../events/library-events.ts'
import { OriginLabels } from '../events/measurement.ts'
import type { EventSink, TaskChange, TaskSink, WorkSink } from '../events/sink.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../events/vocabulary.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { maskSecretsIn } from '../foundation/secrets.ts'
import {
  emptyAttributes,
  type JsonObject,
  type JsonValue,
  toFrozen,
} from '../foundation/json-value.ts'
import type { Log } from '../foundation/log.ts'
import { errorTypeOf, TaskCanceledError } from '../foundation/task-errors.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import {
  describeArguments,
  describeAttempt,
  describeFacts,
  describeFailure,
  describeHint,
  describeRegistration,
  describeResult,
  describeRootTask,
  describeStack,
  describeSubmission,
  describeTask,
} from './attributes.ts'
import type { Entry } from './entry.ts'
import { describeCauses, toAttributeText } from './error-causes.ts'
import { parseUidNumber } from '../foundation/ids.ts'

/** Details of a state change besides the new state. */
export interface ChangeDetails {
  readonly facts?: AttemptFacts
  readonly error?: unknown
  readonly value?: unknown
  readonly isReused?: boolean
  readonly isRecorded?: boolean
  /** Set at the start of an MPI program: its nodes, and the number of its ranks. */
  readonly nodes?: readonly string[]
  readonly ranks?: number
}

/**
 * Called for every change of every task, in order. `created` and `changed` may throw after
 * emitting an event without details; `GuardedEmitter` counts these errors.
 */
export interface LifecycleEmitter {
  created(entry: Entry, time: number): void
  changed(entry: Entry, details: ChangeDetails): void
  noticed(backend: string, notice: Exclude<Notice, NodeNotice>): void
  lateResult(): void
  emit<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void
}

export const nullEmitter: LifecycleEmitter = {
  created() {},
  changed() {},
  noticed() {},
  lateResult() {},
  emit() {},
}

export interface TelemetryEmitterParts {
  readonly sink: EventSink & TaskSink & WorkSink
  readonly clock: Clock
  readonly sessionId: string
  readonly keepResults: boolean
  readonly keepValue: (uid: string, value: unknown) => void
}

type ChangeEvent = NonNullable<Entry['lifecycle']['event']>

const eventClasses = {
  TaskCreated,
  TaskSubmitted,
  TaskQueued,
  TaskStarted,
  TaskCompleted,
  TaskFailed,
  TaskCanceled,
  'tutti.TaskAttempt': TaskAttempt,
  'tutti.AttemptStarted': AttemptStarted,
} as unknown as Readonly<Record<ChangeEvent | 'TaskCreated', EventClass>>

export class TelemetryEmitter implements LifecycleEmitter {
  readonly #parts: TelemetryEmitterParts
  readonly #origins = new Map<string, OriginLabels>()

  constructor(parts: TelemetryEmitterParts) {
    this.#parts = parts
  }

  created(entry: Entry, time: number): void {
    const { sink, clock } = this.#parts
    const { uid } = entry.task
    let attributes: JsonObject
    let own: JsonObject | null
    try {
      attributes = describeTask(entry)
      own = describeRegistration(entry)
    } catch (error) {
      this.#emitWithoutDetails(entry, 'TaskCreated', error)
      throw error
    }
    const emitted = clock.now()
    sink.recordTask({
      event_type: 'TaskCreated',
      event_time: time,
      emit_time: emitted < time ? time : emitted,
      backend: '',
      task_id: uid,
      node_id: null,
      attributes,
      own,
      duration_seconds: 0,
      error_type: '',
      holder: entry,
    })
  }

  changed(entry: Entry, details: ChangeDetails): void {
    const { event: type } = entry.lifecycle
    if (type === null) return
    if (type === 'TaskStarted') entry.isStartEmitted = true
    const { sink } = this.#parts
    let change: TaskChange | BaseEvent
    try {
      change = this.#createChange(entry, type, details)
    } catch (error) {
      this.#emitWithoutDetails(entry, type, error)
      throw error
    }
    if (change instanceof BaseEvent) sink.emit(change)
    else sink.recordTask(change)
    if (type === 'TaskStarted' && entry.attempt > entry.firstAttempt) {
      sink.emit(this.#createStartEvent(entry))
    }
  }

  noticed(backend: string, notice: Exclude<Notice, NodeNotice>): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    if (notice.kind === 'late-result') return sink.recordLateResult()
    if (notice.kind === 'span') return sink.recordSpan(withoutSecrets(notice.span))
    if (notice.kind === 'measurement') {
      return sink.recordMeasurement(this.#findOrigin(backend).addOrigin(notice.measurement))
    }
    const { kind, type, fields, taskId: task_id, nodeId: node_id, attributes } = notice
    if (kind !== 'event') throw new TypeError(`unknown kind of notice: ${String(kind)}`)
    // A type without a dot is a lifecycle event. From a backend, it could end a task a second time.
    if (!type.eventType.includes('.')) throw new TypeError(`${type.eventType} is not for backends`)
    const common = { session_id, backend, task_id, node_id }
    const extraAttributes =
      attributes === undefined ? {} : { attributes: withoutSecrets(attributes) }
    sink.emit(stampEvent(type, clock, { ...withoutSecrets(fields), ...extraAttributes, ...common }))
  }

  lateResult(): void {
    this.#parts.sink.recordLateResult()
  }

  emit<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    sink.emit(stampEvent(eventClass, clock, { ...fields, session_id }))
  }

  /**
   * Stores the value of a task, unless an earlier run has stored it or a later run could not
   * identify the task.
   */
  #keepValue(entry: Entry, { value, isRecorded = false }: ChangeDetails): void {
    const { uid } = entry.task
    if (!this.#parts.keepResults || isRecorded || entry.hasChanged) return
    if (entry.definitionHash !== null || parseUidNumber(uid) === null) {
      this.#parts.keepValue(uid, value)
    }
  }

  #createChange(entry: Entry, type: ChangeEvent, details: ChangeDetails): TaskChange | BaseEvent {
    const isStart = type === 'TaskStarted' || type === 'tutti.AttemptStarted'
    if (isStart && this.#parts.keepResults) entry.detectInputChange()
    if (type === 'tutti.TaskAttempt') return this.#describeAttempt(entry, details)
    if (type === 'tutti.AttemptStarted') return this.#createStartEvent(entry)
    // The value is stored before the event, so that every recorded TaskCompleted has its value.
    if (type === 'TaskCompleted') this.#keepValue(entry, details)
    const { time, durationSeconds } = entry.lifecycle
    const isPlain = type === 'TaskSubmitted' || type === 'TaskQueued'
    const attributes = isPlain ? describeTask(entry) : describeAttempt(entry)
    const own = this.#describeChange(entry, details)
    const errorType = type === 'TaskFailed' ? describeFailure(details.error).error_type : ''
    const emitted = this.#parts.clock.now()
    return {
      event_type: type,
      event_time: time,
      emit_time: emitted < time ? time : emitted,
      backend: entry.backend,
      task_id: entry.task.uid,
      node_id: entry.nodeId,
      attributes,
      own,
      duration_seconds: entry.isStartEmitted ? durationSeconds : 0,
      error_type: errorType,
      holder: entry,
    }
  }

  #describeAttempt(entry: Entry, { error }: ChangeDetails): BaseEvent {
    const { failedStart, durationSeconds, time } = entry.lifecycle
    return stampEvent(TaskAttempt, this.#parts.clock, {
      ...this.#attemptFields(entry),
      ...describeFailure(error),
      start_time: failedStart?.wallSeconds ?? null,
      duration_seconds: durationSeconds,
      retry_at: entry.retryAt ?? time,
    })
  }

  #createStartEvent(entry: Entry): BaseEvent {
    const fields = { ...this.#attemptFields(entry), worker_id: entry.workerId ?? '' }
    return stampEvent(AttemptStarted, this.#parts.clock, fields)
  }

  #attemptFields({ task, backend, nodeId, workerId, attempt, lifecycle }: Entry) {
    return {
      session_id: this.#parts.sessionId,
      backend,
      task_id: task.uid,
      node_id: nodeId,
      event_time: lifecycle.time,
      attributes: emptyAttributes,
      attempt,
      worker_id: workerId,
    }
  }

  /**
   * Emits the event without its details, because describing them threw. Uses nothing that may
   * throw: no values of the application, and no text that would have to be masked.
   */
  #emitWithoutDetails(entry: Entry, type: ChangeEvent | 'TaskCreated', error: unknown): void {
    const { sink, clock } = this.#parts
    const { lifecycle, isStartEmitted, backend } = entry
    const isEnd = hasEnded(lifecycle.state)
    const fields = {
      ...this.#attemptFields(entry),
      backend: type === 'TaskCreated' ? '' : backend,
      duration_seconds: isStartEmitted ? lifecycle.durationSeconds : 0,
      error_type: 'unknown',
      error_message: '',
      start_time: lifecycle.failedStart?.wallSeconds ?? null,
      retry_at: entry.retryAt ?? lifecycle.time,
      attributes: Object.freeze({
        ...entry.attributes,
        ...(isEnd && !isStartEmitted ? { incomplete_lifecycle: true } : {}),
        'tutti.details_error': errorTypeOf(error),
      }),
    }
    sink.emit(stampEvent(eventClasses[type], clock, fields))
  }

  #findOrigin(backend: string): OriginLabels {
    let origin = this.#origins.get(backend)
    if (origin === undefined) {
      origin = new OriginLabels(this.#parts.sessionId, backend)
      this.#origins.set(backend, origin)
    }
    return origin
  }

  /** The attributes that only this event has; `null` for none. */
  #describeChange(entry: Entry, details: ChangeDetails): JsonObject | null {
    const { event } = entry.lifecycle
    if (event === 'TaskSubmitted') return describeSubmission(entry)
    if (event === 'TaskQueued') return null
    if (event !== 'TaskStarted') return this.#describeEnding(entry, details)
    const { nodes, ranks } = details
    const files = describeFacts(details.facts)
    return nodes === undefined || ranks === undefined ? files : toFrozen({ ...files, nodes, ranks })
  }

  #describeEnding(entry: Entry, details: ChangeDetails): Record<string, JsonValue> | null {
    const { event } = entry.lifecycle
    const isIncomplete = !entry.isStartEmitted
    const facts = describeFacts(details.facts)
    const keepsResult = event === 'TaskCompleted' && this.#parts.keepResults
    if (event === 'TaskCompleted' && !keepsResult && !isIncomplete) return facts
    const extras: Record<string, JsonValue> = facts ?? {}
    if (isIncomplete) extras['incomplete_lifecycle'] = true
    if (details.isReused === true) extras['reused'] = true
    if (event === 'TaskFailed') {
      const { error } = details
      Object.assign(extras, describeFailure(error), describeStack(error), describeHint(error))
      Object.assign(
        extras,
        describeCauses(error),
        describeRootTask(error),
        describeArguments(entry),
      )
    }
    if (event === 'TaskCanceled' && details.error instanceof TaskCanceledError) {
      extras['reason'] = toAttributeText(details.error.reason)
    }
    if (keepsResult) Object.assign(extras, describeResult(details.value))
    return extras
  }
}

/** Forwards changes of tasks to telemetry, and catches its errors, so that tasks still end. */
export class GuardedEmitter implements LifecycleEmitter {
  readonly #log: Log
  #inner: LifecycleEmitter = nullEmitter
  #incompleteEvents = 0

  constructor(log: Log) {
    this.#log = log
  }

  use(emitter: LifecycleEmitter): void {
    this.#inner = emitter
  }

  /** Whether nothing receives the changes. */
  get isNull(): boolean {
    return this.#inner === nullEmitter
  }

  get incompleteEvents(): number {
    return this.#incompleteEvents
  }

  created(entry: Entry, time: number): void {
    try {
      this.#inner.created(entry, time)
    } catch (error) {
      this.#countIncomplete(entry, error)
    }
  }

  changed(entry: Entry, details: ChangeDetails): void {
    try {
      this.#inner.changed(entry, details)
    } catch (error) {
      this.#countIncomplete(entry, error)
    }
  }

  noticed(...args: Parameters<LifecycleEmitter['noticed']>): void {
    this.#inner.noticed(...args)
  }

  lateResult(): void {
    this.#inner.lateResult()
  }

  emit: LifecycleEmitter['emit'] = (eventClass, fields) => this.#inner.emit(eventClass, fields)

  #countIncomplete({ task }: Entry, error: unknown): void {
    this.#incompleteEvents++
    if (this.#incompleteEvents > 1) return
    const text = `an event of task ${task.uid} has no details: ${messageOf(error)}`
    this.#log.warn('TaskEventIncomplete', `${text}; further events like this are only counted`)
  }
}

/** Masks secrets, because a backend's text may quote the output of a program or a server. */
const withoutSecrets = <Fields extends object>(fields: Fields): Fields =>
  maskSecretsIn(toFrozen(fields as JsonObject)) as Fields
