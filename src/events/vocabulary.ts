/** The specification's event types. Each is a class and a type of the same name. */

import { type BaseEvent, createEventClass, type FieldSpec } from './event.ts'
import type * as libraryEvents from './library-events.ts'
import type { ResourceUpdate } from './resource-update.ts'

const seconds: FieldSpec = { type: 'float', nullable: false, fallback: 0, min: 0 }

// Aliases rather than interfaces: TypeScript can inline aliases in a user's declaration files.
type Ended = {
  /** Seconds from RUNNING to the end; 0 if RUNNING was never recorded. */
  readonly duration_seconds: number
}
type Failed = Ended & {
  /** The class name of the error, or "unknown". */
  readonly error_type: string
}

/** Telemetry was started. */
export const SessionStarted = createEventClass('SessionStarted')
export type SessionStarted = InstanceType<typeof SessionStarted>

/** Telemetry was stopped. */
export const SessionEnded = createEventClass<'SessionEnded', Ended>('SessionEnded', {
  duration_seconds: seconds,
})
export type SessionEnded = InstanceType<typeof SessionEnded>

/** The session registered a task, before routing: `backend` is `""`. */
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
export const TaskCompleted = createEventClass<'TaskCompleted', Ended>('TaskCompleted', {
  duration_seconds: seconds,
})
export type TaskCompleted = InstanceType<typeof TaskCompleted>

/** The task reached FAILED. */
export const TaskFailed = createEventClass<'TaskFailed', Failed>('TaskFailed', {
  duration_seconds: seconds,
  error_type: { type: 'str', nullable: false, fallback: 'unknown' },
})
export type TaskFailed = InstanceType<typeof TaskFailed>

/** The task reached CANCELED. This is intended and not a failure. */
export const TaskCanceled = createEventClass<'TaskCanceled', Ended>('TaskCanceled', {
  duration_seconds: seconds,
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

/** The specification's events, discriminated by `event_type`. */
export type BuiltInEvent = SessionStarted | SessionEnded | TaskEvent | ResourceUpdate

const terminal = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])

/** Whether an event of this type ends its task. */
export const endsTask = (eventType: string): boolean => terminal.has(eventType)

type EventOf<Class> = Class extends abstract new (...args: never[]) => infer Event
  ? Extract<Event, BaseEvent>
  : never

/** The library's own events, named `tutti.*`, discriminated by `event_type`. */
export type LibraryEvent = EventOf<(typeof libraryEvents)[keyof typeof libraryEvents]>

type Letter =
  | ('a' | 'b' | 'c' | 'd' | 'e' | 'f' | 'g' | 'h' | 'i' | 'j' | 'k' | 'l' | 'm')
  | ('n' | 'o' | 'p' | 'q' | 'r' | 's' | 't' | 'u' | 'v' | 'w' | 'x' | 'y' | 'z')
type Digit = '0' | '1' | '2' | '3' | '4' | '5' | '6' | '7' | '8' | '9'
type NameCharacter = Letter | Uppercase<Letter> | Digit | '_' | '-'
/** Names that start with `Prefix` but do not continue with `Next`. */
type Except<Prefix extends string, Next extends string> =
  | `${Prefix}${Exclude<NameCharacter, Next>}${string}.${string}`
  | (Prefix extends '' ? never : `${Prefix}.${string}`)

/**
 * Names with a dot, except `tutti.*`. Built from prefixes, because TypeScript cannot negate a type:
 * a plain `${string}.${string}` would also match `tutti.*` and hide the fields of those events.
 */
type ApplicationEventType =
  | Except<'', 't'>
  | Except<'t', 'u'>
  | Except<'tu', 't'>
  | Except<'tut', 't'>
  | Except<'tutt', 'i'>
  | `tutti${NameCharacter}${string}.${string}`

/** An event of the application. Use `instanceof` with its class to access its fields. */
export interface ApplicationEvent extends BaseEvent {
  readonly event_type: ApplicationEventType
}

/**
 * Any event of the specification, the library or the application, discriminated by `event_type`.
 */
export type TelemetryEvent = BuiltInEvent | LibraryEvent | ApplicationEvent
