/**
 * The interface of every view. A panel consists of three pure functions over plain state. Reports,
 * resume, `journal verify`, the summary and the progress display consist of panels.
 */

import type { BuiltInEvent, LibraryEvent } from '../events/vocabulary.ts'

type FieldOf<Event> = Event extends unknown ? keyof Event : never
type EventField = FieldOf<BuiltInEvent | LibraryEvent>

/** The fields of the events of tutti. In a file, they may contain any value. */
type OptionalFields = {
  readonly [Field in Exclude<EventField, keyof RequiredFields>]?: unknown
}

/** The fields that every event has, live or as a line of a file. */
interface RequiredFields {
  readonly event_type: string
  readonly event_time: number
  readonly session_id: string
  readonly backend: string
  readonly task_id: string | null
  readonly node_id: string | null
  readonly attributes: { readonly [key: string]: unknown }
}

export interface ViewEvent extends RequiredFields, OptionalFields {
  /** The trace id. Only lines of a file have it, not live events. */
  readonly trace_id?: unknown
}

/** The span of a request to a model, as views read it. Times are in wall-clock seconds. */
export interface ViewSpan {
  readonly start_time: number
  readonly end_time: number
  readonly status_code: string
  readonly attributes: { readonly [key: string]: unknown }
}

/** The changes that an event makes to its task. The pass computes them once for all panels. */
export interface TaskStep {
  /**
   * The number of the task, from 0 in order of first appearance; -1 if there is no task. Outside
   * the lifecycle, only events about dependencies, attempts and progress have a task.
   */
  readonly task: number
  /** The stage that the event marks, as one bit of `stages`; 0 outside the lifecycle. */
  readonly stage: number
  /** The task's stages before the event; 0 for a new task. */
  readonly before: number
  /** The task's stages after the event; the same as `before` for a repeated or late event. */
  readonly after: number
  /**
   * The stages that the task passed in earlier sessions, if they stop counting with this event;
   * otherwise 0. They stop counting at the first event of a task that was not DONE, and when a DONE
   * task starts again. `before` is then 0.
   */
  readonly earlier: number
  /**
   * On TaskCreated, the numbers of the known tasks that the new task depends on. On TaskFailed, the
   * number of the other task whose failure is the cause, if there is one.
   */
  readonly dependencies: readonly number[]
}

export const noDependencies: readonly number[] = Object.freeze([])

/** The step of an event that is outside the lifecycle of any task. */
export const noStep: TaskStep = Object.freeze({
  task: -1,
  stage: 0,
  before: 0,
  after: 0,
  earlier: 0,
  dependencies: noDependencies,
})

/**
 * The step of a SessionStarted event that resumes a run. No task of the earlier session is running
 * any more. Tasks that are DONE stay DONE unless they run again.
 */
export const resumption: TaskStep = Object.freeze({ ...noStep })

/**
 * The states of all panels of a pass, by name. Panels that come earlier in the pass have already
 * handled the current event.
 */
export type PassedStates = Readonly<Record<string, unknown>>

/**
 * One view of a run. Its state is plain data (objects, arrays, maps, numbers, strings and typed
 * arrays), which can be cloned and written to a file. The size of the state is limited by a
 * constant or by 64 bytes per task.
 */
export interface Panel<State, Query, Shown> {
  create(): State
  /** Updates the state in place. Never throws, and ignores events of unknown types. */
  take(state: State, event: ViewEvent, step: TaskStep, passed?: PassedStates): void
  /** Updates the state in place with the span of a request to a model. Never throws. */
  takeSpan?(state: State, span: ViewSpan): void
  /** Returns the current view. Does not change the state. */
  show(state: State, query: Query): Shown
}

/**
 * Returns by how many seconds a task began before its reported start. This happens if an agent of a
 * cluster began the task while no session was running. `event` is the terminal event of the task.
 * If the task was retried, the result is 0.
 */
export function secondsBeforeStart(event: ViewEvent, started: number): number {
  if (event.attributes['attempt'] !== 1) return 0
  const missed = (numberOf(event.duration_seconds) ?? 0) - (event.event_time - started)
  return missed > clockToleranceSeconds ? missed : 0
}

/** Smaller differences may be caused by the clocks of two machines. */
export const clockToleranceSeconds = 0.01

/**
 * Returns the name that an event gives to its task. TaskCreated has a `task_name` if it differs
 * from the executable. Records of earlier versions have `tutti.name`.
 */
export const readTaskName = (attributes: ViewEvent['attributes']): string =>
  textOf(attributes['task_name']) ||
  textOf(attributes['tutti.name']) ||
  textOf(attributes['executable'])

const ends = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])

/**
 * The names of open tasks, for readers of single events. They are remembered because only
 * TaskCreated has a `task_name`.
 */
export class TaskNames {
  readonly #names = new Map<string, string>()

  /** Returns the first name in the events of the task. Call this in the order of the record. */
  nameOf({ event_type, task_id, attributes }: ViewEvent): string {
    if (task_id === null) return readTaskName(attributes)
    const name = this.#names.get(task_id) ?? readTaskName(attributes)
    if (ends.has(event_type)) this.#names.delete(task_id)
    else if (name !== '') this.#names.set(task_id, name)
    return name
  }
}

export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

export const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null
