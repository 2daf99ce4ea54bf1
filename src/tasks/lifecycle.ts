/**
 * The state machine of a task: which stimulus changes which state, and which event reports it.
 * Uses neither clock nor I/O.
 */

export const taskStates = [
  'CREATED',
  'SUBMITTED',
  'QUEUED',
  'RUNNING',
  'DONE',
  'FAILED',
  'CANCELED',
] as const
/** DONE, FAILED and CANCELED are final: a task never leaves them. */
export type TaskState = (typeof taskStates)[number]

/** An input of the state machine. `retry`: an attempt failed and another one follows. */
export type Stimulus = 'submit' | 'queue' | 'start' | 'retry' | 'complete' | 'fail' | 'cancel'

type StateChanges = { readonly [S in Stimulus]?: TaskState }

/**
 * A stimulus that is not listed for a state changes nothing. `advance` makes one exception: `start`
 * between two attempts.
 */
export const transitions: { readonly [S in TaskState]: StateChanges } = {
  CREATED: { submit: 'SUBMITTED' },
  SUBMITTED: {
    queue: 'QUEUED',
    start: 'RUNNING',
    retry: 'SUBMITTED',
    complete: 'DONE',
    fail: 'FAILED',
    cancel: 'CANCELED',
  },
  QUEUED: {
    start: 'RUNNING',
    retry: 'QUEUED',
    complete: 'DONE',
    fail: 'FAILED',
    cancel: 'CANCELED',
  },
  RUNNING: { retry: 'RUNNING', complete: 'DONE', fail: 'FAILED', cancel: 'CANCELED' },
  DONE: {},
  FAILED: {},
  CANCELED: {},
}

/** The event for the start of a further attempt. TaskStarted reports only the first start. */
export const attemptStarted = 'tutti.AttemptStarted'

export const stimulusEvents = {
  submit: 'TaskSubmitted',
  queue: 'TaskQueued',
  start: 'TaskStarted',
  retry: 'tutti.TaskAttempt',
  complete: 'TaskCompleted',
  fail: 'TaskFailed',
  cancel: 'TaskCanceled',
} as const satisfies { [S in Stimulus]: string }

/** The times of the wall clock and of the monotonic clock at one moment. */
export interface Moment {
  readonly wallSeconds: number
  readonly monotonicMs: number
}

/**
 * The state of a task and the change that led to it. Immutable: each change creates a new object.
 */
export class Lifecycle {
  readonly state: TaskState
  /**
   * The event of the change; `null` on registration, `attemptStarted` for a start after the first.
   */
  readonly event: (typeof stimulusEvents)[Stimulus] | typeof attemptStarted | null
  /** The time of the change in wall-clock seconds, which never decreases within a task. */
  readonly time: number
  /** The time of TaskStarted in monotonic milliseconds; `null` before TaskStarted. */
  readonly startedMs: number | null
  /** When the current attempt began; `null` before the first and between two attempts. */
  readonly attemptStart: Moment | null
  /** For `tutti.TaskAttempt`: when the failed attempt began; `null` if it did not begin. */
  readonly failedStart: Moment | null
  /** The time since TaskStarted, or for `tutti.TaskAttempt` since the failed attempt began. */
  readonly elapsedMs: number

  constructor(state: TaskState, stimulus: Stimulus | null, before: Lifecycle | null, now: Moment) {
    const isStart = stimulus === 'start'
    const isRetry = stimulus === 'retry'
    const attemptStart = before?.attemptStart ?? null
    const startedMs = before?.startedMs ?? (isStart ? now.monotonicMs : null)
    this.state = state
    this.event = stimulus === null ? null : stimulusEvents[stimulus]
    if (isStart && before?.state === 'RUNNING') this.event = attemptStarted
    this.time = before === null ? now.wallSeconds : Math.max(before.time, now.wallSeconds)
    this.startedMs = startedMs
    if (isStart) this.attemptStart = { wallSeconds: this.time, monotonicMs: now.monotonicMs }
    else this.attemptStart = isRetry ? null : attemptStart
    this.failedStart = isRetry ? attemptStart : null
    const sinceMs = isRetry ? (attemptStart?.monotonicMs ?? null) : startedMs
    this.elapsedMs = sinceMs === null ? 0 : Math.max(0, now.monotonicMs - sinceMs)
  }

  get durationSeconds(): number {
    return this.elapsedMs / 1000
  }

  /** Whether a RUNNING task is waiting for its next attempt. */
  get isBetweenAttempts(): boolean {
    return this.state === 'RUNNING' && this.attemptStart === null
  }
}

export const newLifecycle = (now: Moment): Lifecycle => new Lifecycle('CREATED', null, null, now)

export const hasEnded = (state: TaskState): boolean =>
  state === 'DONE' || state === 'FAILED' || state === 'CANCELED'

/** Returns the next lifecycle; `null` if the stimulus is late or repeated. */
export function advance(lifecycle: Lifecycle, stimulus: Stimulus, now: Moment): Lifecycle | null {
  const isNextAttempt = stimulus === 'start' && lifecycle.isBetweenAttempts
  const state = isNextAttempt ? 'RUNNING' : transitions[lifecycle.state][stimulus]
  return state === undefined ? null : new Lifecycle(state, stimulus, lifecycle, now)
}
