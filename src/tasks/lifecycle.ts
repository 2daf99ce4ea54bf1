/**
 * A task's life as data: which stimulus moves which state, and which event tells it. No time, no
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

/** The event that tells of a stimulus, once it was accepted. */
export const eventOf = {
  submit: 'TaskSubmitted',
  queue: 'TaskQueued',
  start: 'TaskStarted',
  retry: 'tutti.TaskAttempt',
  complete: 'TaskCompleted',
  fail: 'TaskFailed',
  cancel: 'TaskCanceled',
} as const satisfies { [S in Stimulus]: string }

/** Where a task stands. A new one replaces it at every change. */
export interface Life {
  readonly state: TaskState
  /** Monotonic milliseconds at which the latest attempt began; `null` before the first. */
  readonly startedMs: number | null
  /** An attempt has failed and the next has not begun. */
  readonly isBetweenAttempts: boolean
  /** How long the attempt that failed last had run. */
  readonly failedAfterMs: number
  /** Wall-clock seconds of the latest event; times of one task never decrease. */
  readonly lastTime: number
}

export interface Moment {
  readonly wallSeconds: number
  readonly monotonicMs: number
}

export interface Change {
  readonly life: Life
  /** `null` when a later attempt begins: TaskStarted is told once. */
  readonly event: (typeof eventOf)[Stimulus] | null
  readonly time: number
  /** The latest attempt's execution time; 0 if RUNNING was never recorded. */
  readonly durationSeconds: number
  /** The task ended without RUNNING having been recorded. */
  readonly isIncomplete: boolean
}

/** The life of a task that was just registered. */
export function newLife(moment: Moment): Life {
  return {
    state: 'CREATED',
    startedMs: null,
    isBetweenAttempts: false,
    failedAfterMs: 0,
    lastTime: moment.wallSeconds,
  }
}

export const hasEnded = (state: TaskState): boolean =>
  state === 'DONE' || state === 'FAILED' || state === 'CANCELED'

/** The next life and the event that tells it, or `null` for a late or repeated stimulus. */
export function advance(life: Life, stimulus: Stimulus, moment: Moment): Change | null {
  const time = Math.max(life.lastTime, moment.wallSeconds)
  if (stimulus === 'start' && life.isBetweenAttempts && life.state === 'RUNNING') {
    const startedMs = moment.monotonicMs
    const next = { ...life, startedMs, isBetweenAttempts: false, lastTime: time }
    return { life: next, event: null, time, durationSeconds: 0, isIncomplete: false }
  }
  const state = transitions[life.state][stimulus]
  if (state === undefined) return null
  const elapsedMs = attemptMs(life, moment)
  return {
    life: {
      state,
      startedMs: stimulus === 'start' ? moment.monotonicMs : life.startedMs,
      isBetweenAttempts: stimulus === 'retry' && state === 'RUNNING',
      failedAfterMs: stimulus === 'retry' ? elapsedMs : life.failedAfterMs,
      lastTime: time,
    },
    event: eventOf[stimulus],
    time,
    durationSeconds: elapsedMs / 1000,
    isIncomplete: hasEnded(state) && life.startedMs === null,
  }
}

/** Waiting for the next attempt is not execution. */
function attemptMs({ startedMs, isBetweenAttempts, failedAfterMs }: Life, now: Moment): number {
  if (startedMs === null) return 0
  return isBetweenAttempts ? failedAfterMs : Math.max(0, now.monotonicMs - startedMs)
}
