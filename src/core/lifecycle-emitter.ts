/** Turns the ledger's decisions into events. It decides nothing itself. */

import type { AttemptFacts, NodeNotice, Notice } from '../backends/backend.ts'
import { type BaseEvent, type EventClass, stampEvent, type TrustedFields } from '../events/event.ts'
import { AttemptStarted, TaskAttempt } from '../events/library-events.ts'
import { OriginLabels } from '../events/measurement.ts'
import type { EventSink, WorkSink } from '../events/sink.ts'
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
  describeReason,
  describeRegistration,
  describeResult,
  describeRoot,
  describeStack,
  describeSubmission,
  describeTask,
} from './attributes.ts'
import type { Entry } from './entry.ts'
import { describeCauses } from './error-causes.ts'
import { generatedNumber } from '../foundation/ids.ts'

/** Details of a state change besides the new state. */
export interface Ending {
  readonly facts?: AttemptFacts
  /** The original error of a failure, or the cancellation. */
  readonly error?: unknown
  /** The value that a completed task returned. */
  readonly value?: unknown
  /** Whether the value comes from an earlier or equal task. */
  readonly isReused?: boolean
  /** Whether the value is already stored with the record of an earlier run. */
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
  /** `entry.life` holds the new state and its event. */
  changed(entry: Entry, ending: Ending): void
  noticed(backend: string, notice: Exclude<Notice, NodeNotice>): void
  /** A result arrived after the end of its task and was dropped. */
  lateResult(): void
  /** Emits an event of the library that is not a change of a task. */
  emit<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void
}

/** Emits nothing, for a session without telemetry. */
export const nullEmitter: LifecycleEmitter = {
  created() {},
  changed() {},
  noticed() {},
  lateResult() {},
  emit() {},
}

export interface TelemetryEmitterParts {
  readonly sink: EventSink & WorkSink
  readonly clock: Clock
  readonly sessionId: string
  /** Adds the values that tasks returned to TaskCompleted. */
  readonly keepResults: boolean
  /** Stores the value that a task returned, for a later run. */
  readonly keepValue: (uid: string, value: unknown) => void
}

type ChangeEvent = NonNullable<Entry['life']['event']>

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
  /** By backend. */
  readonly #origins = new Map<string, OriginLabels>()

  constructor(parts: TelemetryEmitterParts) {
    this.#parts = parts
  }

  created(entry: Entry, time: number): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    const { uid: task_id } = entry.task
    let attributes: JsonObject
    try {
      attributes = describeRegistration(entry)
    } catch (error) {
      this.#emitPlain(entry, 'TaskCreated', error)
      throw error
    }
    sink.emit(
      stampEvent(TaskCreated, clock, {
        session_id,
        backend: '',
        event_time: time,
        task_id,
        attributes,
      }),
    )
  }

  changed(entry: Entry, ending: Ending): void {
    const { event: type } = entry.life
    if (type === null) return
    if (type === 'TaskStarted') entry.isStartEmitted = true
    let event: BaseEvent
    try {
      event = this.#describe(entry, type, ending)
    } catch (error) {
      this.#emitPlain(entry, type, error)
      throw error
    }
    this.#parts.sink.emit(event)
    // A retry is the first attempt that starts: it needs AttemptStarted in addition.
    if (type === 'TaskStarted' && entry.attempt > entry.firstAttempt) {
      this.#parts.sink.emit(this.#describeStart(entry))
    }
  }

  noticed(backend: string, notice: Exclude<Notice, NodeNotice>): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    if (notice.kind === 'late-result') return sink.recordLateResult()
    if (notice.kind === 'span') return sink.recordSpan(withoutSecrets(notice.span))
    if (notice.kind === 'measurement') {
      return sink.recordMeasurement(this.#originOf(backend).addTo(notice.measurement))
    }
    const { kind, type, fields, taskId: task_id, nodeId: node_id, attributes } = notice
    if (kind !== 'event') throw new TypeError(`unknown kind of notice: ${String(kind)}`)
    // Lifecycle events come only from the ledger: a backend's could end a task a second time.
    if (!type.eventType.includes('.')) throw new TypeError(`${type.eventType} is not for backends`)
    const common = { session_id, backend, task_id, node_id }
    const more = attributes === undefined ? {} : { attributes: withoutSecrets(attributes) }
    sink.emit(stampEvent(type, clock, { ...withoutSecrets(fields), ...more, ...common }))
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
   * Skips values that an earlier run has stored, and values of tasks that a later run could not
   * identify.
   */
  #keepValue(entry: Entry, { value, isRecorded = false }: Ending): void {
    const { uid } = entry.task
    if (!this.#parts.keepResults || isRecorded || entry.hasChanged) return
    if (entry.definitionHash !== null || generatedNumber(uid) === null) {
      this.#parts.keepValue(uid, value)
    }
  }

  #describe(entry: Entry, type: ChangeEvent, ending: Ending): BaseEvent {
    const isStart = type === 'TaskStarted' || type === 'tutti.AttemptStarted'
    if (isStart && this.#parts.keepResults) entry.compareInput()
    if (type === 'tutti.TaskAttempt') return this.#describeAttempt(entry, ending)
    if (type === 'tutti.AttemptStarted') return this.#describeStart(entry)
    // Stored before the event, so that every recorded TaskCompleted has its value.
    if (type === 'TaskCompleted') this.#keepValue(entry, ending)
    const { clock, sessionId: session_id } = this.#parts
    const { time, durationSeconds } = entry.life
    const fields = {
      session_id,
      backend: entry.backend,
      event_time: time,
      task_id: entry.task.uid,
      node_id: entry.nodeId,
      duration_seconds: entry.isStartEmitted ? durationSeconds : 0,
      error_type: type === 'TaskFailed' ? describeFailure(ending.error).error_type : '',
      attributes: this.#attributesOf(entry, ending),
    }
    return stampEvent(eventClasses[type], clock, fields)
  }

  #describeAttempt(entry: Entry, { error }: Ending): BaseEvent {
    const { failedStart, durationSeconds, time } = entry.life
    return stampEvent(TaskAttempt, this.#parts.clock, {
      ...this.#aboutAttempt(entry),
      ...describeFailure(error),
      start_time: failedStart?.wallSeconds ?? null,
      duration_seconds: durationSeconds,
      retry_at: entry.retryAt ?? time,
    })
  }

  #describeStart(entry: Entry): BaseEvent {
    const fields = { ...this.#aboutAttempt(entry), worker_id: entry.workerId ?? '' }
    return stampEvent(AttemptStarted, this.#parts.clock, fields)
  }

  #aboutAttempt({ task, backend, nodeId, workerId, attempt, life }: Entry) {
    return {
      session_id: this.#parts.sessionId,
      backend,
      task_id: task.uid,
      node_id: nodeId,
      event_time: life.time,
      attributes: emptyAttributes,
      attempt,
      worker_id: workerId,
    }
  }

  /**
   * Emits the event without its details, because describing them threw. Uses nothing that may
   * throw: no values of the application, and no text that would have to be masked.
   */
  #emitPlain(entry: Entry, type: ChangeEvent | 'TaskCreated', error: unknown): void {
    const { sink, clock } = this.#parts
    const { life, isStartEmitted, backend } = entry
    const isEnd = hasEnded(life.state)
    const fields = {
      ...this.#aboutAttempt(entry),
      backend: type === 'TaskCreated' ? '' : backend,
      duration_seconds: isStartEmitted ? life.durationSeconds : 0,
      error_type: 'unknown',
      error_message: '',
      start_time: life.failedStart?.wallSeconds ?? null,
      retry_at: entry.retryAt ?? life.time,
      attributes: Object.freeze({
        ...entry.attributes,
        ...(isEnd && !isStartEmitted ? { incomplete_lifecycle: true } : {}),
        'tutti.details_error': errorTypeOf(error),
      }),
    }
    sink.emit(stampEvent(eventClasses[type], clock, fields))
  }

  #originOf(backend: string): OriginLabels {
    let origin = this.#origins.get(backend)
    if (origin === undefined) {
      origin = new OriginLabels(this.#parts.sessionId, backend)
      this.#origins.set(backend, origin)
    }
    return origin
  }

  #attributesOf(entry: Entry, ending: Ending): JsonObject {
    const { event } = entry.life
    if (event === 'TaskSubmitted') return describeSubmission(entry)
    if (event === 'TaskQueued') return describeTask(entry)
    const attempt = describeAttempt(entry)
    if (event === 'TaskStarted') {
      const { nodes, ranks } = ending
      const files = describeFacts(ending.facts)
      const started = files === null ? attempt : Object.freeze({ ...attempt, ...files })
      if (nodes === undefined || ranks === undefined) return started
      return toFrozen({ ...started, nodes, ranks })
    }
    const extras = this.#describeEnding(entry, ending)
    return extras === null ? attempt : Object.freeze({ ...attempt, ...extras })
  }

  /** `null` if there is nothing to add, as for most tasks that succeed. */
  #describeEnding(entry: Entry, ending: Ending): Record<string, JsonValue> | null {
    const { event } = entry.life
    const isIncomplete = !entry.isStartEmitted
    const facts = describeFacts(ending.facts)
    const isKept = event === 'TaskCompleted' && this.#parts.keepResults
    if (event === 'TaskCompleted' && !isKept && !isIncomplete) return facts
    const extras: Record<string, JsonValue> = facts ?? {}
    if (isIncomplete) extras['incomplete_lifecycle'] = true
    if (ending.isReused === true) extras['reused'] = true
    if (event === 'TaskFailed') {
      const { error } = ending
      Object.assign(extras, describeFailure(error), describeStack(error), describeHint(error))
      Object.assign(extras, describeCauses(error), describeRoot(error), describeArguments(entry))
    }
    if (event === 'TaskCanceled' && ending.error instanceof TaskCanceledError) {
      Object.assign(extras, describeReason(ending.error))
    }
    if (isKept) Object.assign(extras, describeResult(ending.value))
    return extras
  }
}

/** Passes changes of tasks to telemetry, and catches its errors so that tasks still end. */
export class GuardedEmitter implements LifecycleEmitter {
  readonly #log: Log
  #inner: LifecycleEmitter = nullEmitter
  #incompleteEvents = 0

  constructor(log: Log) {
    this.#log = log
  }

  /** From now on changes are passed to this emitter. */
  use(emitter: LifecycleEmitter): void {
    this.#inner = emitter
  }

  /** The number of changes that could not be described completely. */
  get incompleteEvents(): number {
    return this.#incompleteEvents
  }

  created(entry: Entry, time: number): void {
    try {
      this.#inner.created(entry, time)
    } catch (error) {
      this.#count(entry, error)
    }
  }

  changed(entry: Entry, ending: Ending): void {
    try {
      this.#inner.changed(entry, ending)
    } catch (error) {
      this.#count(entry, error)
    }
  }

  noticed(...args: Parameters<LifecycleEmitter['noticed']>): void {
    this.#inner.noticed(...args)
  }

  lateResult(): void {
    this.#inner.lateResult()
  }

  emit: LifecycleEmitter['emit'] = (eventClass, fields) => this.#inner.emit(eventClass, fields)

  #count({ task }: Entry, error: unknown): void {
    this.#incompleteEvents++
    if (this.#incompleteEvents > 1) return
    const text = `an event of task ${task.uid} has no details: ${messageOf(error)}`
    this.#log.warn('TaskEventIncomplete', `${text}; further ones are only counted`)
  }
}

/** Masks secrets, because a backend's text may quote the output of a program or a server. */
const withoutSecrets = <Fields extends object>(fields: Fields): Fields =>
  maskSecretsIn(toFrozen(fields as JsonObject)) as Fields
