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

/** What can happen to a task. `retry` means that an attempt failed and another one follows. */
export type Stimulus = 'submit' | 'queue' | 'start' | 'retry' | 'complete' | 'fail' | 'cancel'

type Moves = { readonly [S in Stimulus]?: TaskState }

/** A stimulus that is not listed for a state changes nothing. */
export const transitions: { readonly [S in TaskState]: Moves } = {
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

/** Reports the start of an attempt that TaskStarted does not report. */
export const laterStart = 'tutti.AttemptStarted'

/** The event for an accepted stimulus. */
export const eventOf = {
  submit: 'TaskSubmitted',
  queue: 'TaskQueued',
  start: 'TaskStarted',
  retry: 'tutti.TaskAttempt',
  complete: 'TaskCompleted',
  fail: 'TaskFailed',
  cancel: 'TaskCanceled',
} as const satisfies { [S in Stimulus]: string }

/** One reading of both clocks. */
export interface Moment {
  readonly wallSeconds: number
  readonly monotonicMs: number
}

/** The state of a task and the change that led to it. Immutable: each change creates a new one. */
export class Life {
  readonly state: TaskState
  /** `null` on registration. TaskStarted is emitted only once; later starts use `laterStart`. */
  readonly event: (typeof eventOf)[Stimulus] | typeof laterStart | null
  /** Wall-clock seconds. They never decrease within one task. */
  readonly time: number
  /** Monotonic milliseconds of TaskStarted; `null` before. */
  readonly startedMs: number | null
  /** When the current attempt began; `null` before the first and between two attempts. */
  readonly attemptStart: Moment | null
  /** For `tutti.TaskAttempt`: when the failed attempt began; `null` if it never began. */
  readonly failedStart: Moment | null
  /** Time since TaskStarted, over all attempts. For `tutti.TaskAttempt`, since its own start. */
  readonly elapsedMs: number

  constructor(state: TaskState, stimulus: Stimulus | null, before: Life | null, now: Moment) {
    const isStart = stimulus === 'start'
    const isRetry = stimulus === 'retry'
    const attemptStart = before?.attemptStart ?? null
    const startedMs = before?.startedMs ?? (isStart ? now.monotonicMs : null)
    this.state = state
    this.event = stimulus === null ? null : eventOf[stimulus]
    if (isStart && before?.state === 'RUNNING') this.event = laterStart
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

/** The life of a task that was just registered. */
export const newLife = (now: Moment): Life => new Life('CREATED', null, null, now)

export const hasEnded = (state: TaskState): boolean =>
  state === 'DONE' || state === 'FAILED' || state === 'CANCELED'

/** The next life, or `null` for a late or repeated stimulus. */
export function advance(life: Life, stimulus: Stimulus, now: Moment): Life | null {
  const isNextAttempt = stimulus === 'start' && life.isBetweenAttempts
  const state = isNextAttempt ? 'RUNNING' : transitions[life.state][stimulus]
  return state === undefined ? null : new Life(state, stimulus, life, now)
}
