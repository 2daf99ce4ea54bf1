/** The specification's event types. Each is a class and a type of the same name. */

import { type BaseEvent, createEventClass, type EventClass, type FieldSpec } from './event.ts'
import type * as libraryEvents from './library-events.ts'
import type { ResourceUpdate } from './resource-update.ts'
import { allAttributes, type TaskChange, type TaskEventType } from './sink.ts'

const secondsField: FieldSpec = { type: 'float', nullable: false, fallback: 0, min: 0 }

// Type aliases, because TypeScript can inline them in a user's declaration files, unlike
// interfaces.
type EndFields = {
  /** Seconds from RUNNING to the end; 0 if RUNNING was never recorded. */
  readonly duration_seconds: number
}
type FailureFields = EndFields & {
  /** The class name of the error, or "unknown". */
  readonly error_type: string
}

/** Telemetry was started. */
export const SessionStarted = createEventClass('SessionStarted')
export type SessionStarted = InstanceType<typeof SessionStarted>

/** Telemetry was stopped. */
export const SessionEnded = createEventClass<'SessionEnded', EndFields>('SessionEnded', {
  duration_seconds: secondsField,
})
export type SessionEnded = InstanceType<typeof SessionEnded>

/** The session registered a task. `backend` is `""`, because the task is not routed yet. */
export const TaskCreated = createEventClass('TaskCreated')
export type TaskCreated = InstanceType<typeof TaskCreated>

/** Routing assigned a backend. */
export const TaskSubmitted = createEventClass('TaskSubmitted')
export type TaskSubmitted = InstanceType<typeof TaskSubmitted>

/** The task is about to be put into the backend's own queue. */
export const TaskQueued = createEventClass('TaskQueued')
export type TaskQueued = InstanceType<typeof TaskQueued>

/** The task entered RUNNING. This is the authoritative start of execution. */
export const TaskStarted = createEventClass('TaskStarted')
export type TaskStarted = InstanceType<typeof TaskStarted>

/** The task reached DONE. */
export const TaskCompleted = createEventClass<'TaskCompleted', EndFields>('TaskCompleted', {
  duration_seconds: secondsField,
})
export type TaskCompleted = InstanceType<typeof TaskCompleted>

/** The task reached FAILED. */
export const TaskFailed = createEventClass<'TaskFailed', FailureFields>('TaskFailed', {
  duration_seconds: secondsField,
  error_type: { type: 'str', nullable: false, fallback: 'unknown' },
})
export type TaskFailed = InstanceType<typeof TaskFailed>

/** The task reached CANCELED, which is intended and not a failure. */
export const TaskCanceled = createEventClass<'TaskCanceled', EndFields>('TaskCanceled', {
  duration_seconds: secondsField,
})
export type TaskCanceled = InstanceType<typeof TaskCanceled>

/** The specification's events of a task's lifecycle. */
export type TaskEvent =
  | TaskCreated
  | TaskSubmitted
  | TaskQueued
  | TaskStarted
  | TaskCompleted
  | TaskFailed
  | TaskCanceled

const taskEventClasses = {
  TaskCreated,
  TaskSubmitted,
  TaskQueued,
  TaskStarted,
  TaskCompleted,
  TaskFailed,
  TaskCanceled,
} as unknown as Readonly<Record<TaskEventType, EventClass<string, EndFields>>>

/** Creates the event object of a lifecycle change. */
export function createTaskEvent(change: TaskChange, sessionId: string, eventId: string): BaseEvent {
  const fields = {
    event_id: eventId,
    event_time: change.event_time,
    session_id: sessionId,
    backend: change.backend,
    task_id: change.task_id,
    node_id: change.node_id,
    attributes: allAttributes(change),
    duration_seconds: change.duration_seconds,
    error_type: change.error_type,
  }
  return new taskEventClasses[change.event_type](fields, change.emit_time)
}

/** The specification's events, discriminated by `event_type`. */
export type BuiltInEvent = SessionStarted | SessionEnded | TaskEvent | ResourceUpdate

/** The types of events that end a task. */
export const terminalEvents: ReadonlySet<string> = new Set([
  'TaskCompleted',
  'TaskFailed',
  'TaskCanceled',
])

type InstanceOf<Class> = Class extends abstract new (...args: never[]) => infer Event
  ? Extract<Event, BaseEvent>
  : never

/** The library's own events, named `tutti.*`, discriminated by `event_type`. */
export type LibraryEvent = InstanceOf<(typeof libraryEvents)[keyof typeof libraryEvents]>

type Letter =
  | ('a' | 'b' | 'c' | 'd' | 'e' | 'f' | 'g' | 'h' | 'i' | 'j' | 'k' | 'l' | 'm')
  | ('n' | 'o' | 'p' | 'q' | 'r' | 's' | 't' | 'u' | 'v' | 'w' | 'x' | 'y' | 'z')
type Digit = '0' | '1' | '2' | '3' | '4' | '5' | '6' | '7' | '8' | '9'
type NameCharacter = Letter | Uppercase<Letter> | Digit | '_' | '-'
/** Names with a dot that begin with `Prefix`, unless `Next` follows the prefix. */
type NamesWithout<Prefix extends string, Next extends string> =
  | `${Prefix}${Exclude<NameCharacter, Next>}${string}.${string}`
  | (Prefix extends '' ? never : `${Prefix}.${string}`)

/**
 * Names with a dot, except `tutti.*`. Composed of prefixes, because TypeScript cannot negate a
 * type. A plain `${string}.${string}` would also match `tutti.*` and hide the fields of those
 * events.
 */
type ApplicationEventType =
  | NamesWithout<'', 't'>
  | NamesWithout<'t', 'u'>
  | NamesWithout<'tu', 't'>
  | NamesWithout<'tut', 't'>
  | NamesWithout<'tutt', 'i'>
  | `tutti${NameCharacter}${string}.${string}`

/** An event of the application. Use `instanceof` with its class to access its fields. */
export interface ApplicationEvent extends BaseEvent {
  readonly event_type: ApplicationEventType
}

/**
 * Any event of the specification, the library or the application, discriminated by `event_type`.
 */
export type TelemetryEvent = BuiltInEvent | LibraryEvent | ApplicationEvent
