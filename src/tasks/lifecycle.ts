/**
 * A task's life as data: which stimulus moves which state, and which event reports it. No time, no
 * I/O.
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
/** DONE, FAILED and CANCELED are ends: a task never leaves them. */
export type TaskState = (typeof taskStates)[number]

/** What can happen to a task. `retry`: an attempt failed and another follows. */
export type Stimulus = 'submit' | 'queue' | 'start' | 'retry' | 'complete' | 'fail' | 'cancel'

type Moves = { readonly [S in Stimulus]?: TaskState }

/** Everything that is not listed changes nothing. */
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

/** The event for a stimulus that was accepted. */
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

/** Where a task stands, and what brought it there. A new one replaces it at every change. */
export class Life {
  readonly state: TaskState
  /** `null` on registration and at the start of a later attempt: TaskStarted is emitted once. */
  readonly event: (typeof eventOf)[Stimulus] | null
  /** Wall-clock seconds; times of one task never decrease. */
  readonly time: number
  /** Monotonic milliseconds at which the latest attempt began; `null` before the first. */
  readonly startedMs: number | null
  /** An attempt has failed and the next has not begun. */
  readonly isBetweenAttempts: boolean
  /** The latest attempt's execution time by now; 0 if RUNNING was never recorded. */
  readonly elapsedMs: number

  constructor(state: TaskState, stimulus: Stimulus | null, before: Life | null, now: Moment) {
    const isStart = stimulus === 'start'
    this.state = state
    this.event =
      stimulus === null || (isStart && before?.state === 'RUNNING') ? null : eventOf[stimulus]
    this.time = before === null ? now.wallSeconds : Math.max(before.time, now.wallSeconds)
    this.startedMs = isStart ? now.monotonicMs : (before?.startedMs ?? null)
    this.isBetweenAttempts = stimulus === 'retry' && state === 'RUNNING'
    this.elapsedMs = isStart || before === null ? 0 : attemptMs(before, now)
  }

  get durationSeconds(): number {
    return this.elapsedMs / 1000
  }

  /** The task ended without RUNNING having been recorded. */
  get isIncomplete(): boolean {
    return hasEnded(this.state) && this.startedMs === null
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

/** Waiting for the next attempt is not execution. */
function attemptMs({ startedMs, isBetweenAttempts, elapsedMs }: Life, now: Moment): number {
  if (startedMs === null) return 0
  return isBetweenAttempts ? elapsedMs : Math.max(0, now.monotonicMs - startedMs)
}
