/**
 * The form of every view: a panel is three pure functions over plain state. Reports, resume,
 * `journal verify`, the summary and the progress display consist of panels.
 */

/** The fields that views read; both live events and lines of a file have them. */
export interface ViewEvent {
  readonly event_type: string
  readonly event_time: number
  readonly session_id: string
  readonly backend: string
  readonly task_id: string | null
  readonly node_id: string | null
  readonly attributes: { readonly [key: string]: unknown }
  /** Only lines of a file have this field, not live events. */
  readonly trace_id?: unknown
  // Fields that only some event types have; in a file they may contain any value.
  readonly duration_seconds?: unknown
  readonly size?: unknown
  readonly fraction?: unknown
  readonly text?: unknown
  readonly resource_scope?: unknown
  readonly cpu_percent?: unknown
  readonly memory_percent?: unknown
  readonly gpu_percent?: unknown
  readonly worker_id?: unknown
  readonly attempt?: unknown
  readonly cores?: unknown
  readonly gpus?: unknown
  readonly memory_mb?: unknown
  readonly labels?: unknown
  readonly retry_at?: unknown
  readonly emit_time?: unknown
  readonly error_type?: unknown
  readonly error_message?: unknown
  readonly wait_seconds?: unknown
  readonly gpu_id?: unknown
  readonly reason?: unknown
  readonly source?: unknown
  readonly message?: unknown
  readonly subscriber?: unknown
  readonly errno?: unknown
  readonly lost?: unknown
  readonly count?: unknown
  readonly tasks?: unknown
  readonly limit?: unknown
  readonly executable?: unknown
  readonly seconds?: unknown
  readonly workflow_id?: unknown
  readonly parent_workflow_id?: unknown
}

/** The changes that an event makes to its task. Computed once by the pass, for all panels. */
export interface TaskStep {
  /**
   * The number of the task, in order of first appearance from 0; -1 if there is no task. Outside
   * the lifecycle, only events about dependencies, attempts and progress have a task.
   */
  readonly task: number
  /** The stage of the event, one bit of `stages`; 0 outside the lifecycle, including attempts. */
  readonly stage: number
  /** The task's stages before the event; 0 for a new task. */
  readonly before: number
  /** The task's stages after the event. Equal to `before` for a repeated or late event. */
  readonly after: number
  /**
   * The task's stages in an earlier session, on the event at which they stop counting; `before` is
   * then 0. This is the first event of a task that was not DONE, or the start of a DONE task that
   * runs again. 0 on all other events.
   */
  readonly earlier: number
  /**
   * On TaskCreated: the numbers of the known tasks that the new task depends on. On TaskFailed: the
   * number of the other task whose failure is the cause, if any.
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
 * The step of a SessionStarted that resumes a run: no task of the earlier session is running. Tasks
 * that are DONE stay DONE unless they run again.
 */
export const resumption: TaskStep = Object.freeze({ ...noStep })

/**
 * The states of all panels of a pass by name. Panels before the current one in the pass have
 * already handled the current event.
 */
export type PassedStates = Readonly<Record<string, unknown>>

/**
 * One view of a run. Its state is plain data (objects, arrays, maps, numbers, strings and typed
 * arrays), which can be cloned and written to a file. Its size is bounded by a constant or by 64
 * bytes per task.
 */
export interface Panel<State, Query, Shown> {
  /** The state before the first event. */
  create(): State
  /** Updates the state in place. Never throws for any event; ignores unknown types. */
  take(state: State, event: ViewEvent, step: TaskStep, passed?: PassedStates): void
  /** Returns the current view. Does not change the state. */
  show(state: State, query: Query): Shown
}

/**
 * The number of seconds by which a task's only attempt began before its reported start. Positive if
 * it began while no session was running: agents of a cluster continue without a session.
 */
export function missedSeconds(event: ViewEvent, started: number): number {
  if (event.attributes['attempt'] !== 1) return 0
  const missed = (numberOf(event.duration_seconds) ?? 0) - (event.event_time - started)
  return missed > clockToleranceSeconds ? missed : 0
}

/** Smaller differences may be due to the clocks of two machines. */
export const clockToleranceSeconds = 0.01

/**
 * The name that an event gives to its task. TaskCreated has `task_name` where it differs from the
 * executable; records of earlier versions have `tutti.name`.
 */
export const nameIn = (attributes: ViewEvent['attributes']): string =>
  textOf(attributes['task_name']) ||
  textOf(attributes['tutti.name']) ||
  textOf(attributes['executable'])

const ends = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled'])

/** The names of open tasks, for readers of single events: only TaskCreated has `task_name`. */
export class TaskNames {
  readonly #names = new Map<string, string>()

  /** Returns the first name in the events of the task. Call this in the order of the record. */
  nameOf({ event_type, task_id, attributes }: ViewEvent): string {
    if (task_id === null) return nameIn(attributes)
    const name = this.#names.get(task_id) ?? nameIn(attributes)
    if (ends.has(event_type)) this.#names.delete(task_id)
    else if (name !== '') this.#names.set(task_id, name)
    return name
  }
}

/** Returns the text in a field of unknown type; `""` if it contains none. */
export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

/** Returns the finite number in a field of unknown type, or `null`. */
export const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null
