/**
 * Verify: checks that a record is valid. The events of each task must be in order, each task must
 * end once, there must be one trace, and the counters must agree with the events. Uses 8 bytes per
 * task.
 */

import { countText } from '../readable.ts'
import { createColumn, setValue, valueAt } from '../columns.ts'
import type { CountsView } from './counts.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { type Panel, type TaskStep, textOf, type ViewEvent } from '../panel.ts'

const createVerify = () => ({
  problems: [] as string[],
  problemCount: 0,
  hasBegun: false,
  hasEnded: false,
  traceId: undefined as unknown,
  sessionId: null as string | null,
  isResumed: false,
  reused: new Map<string, string>(),
  /** The time of the last event of each open task; NaN once the task has ended. */
  lastTimes: createColumn('f64'),
  /** The earliest time of any event, even if the clock was changed. */
  firstTime: Infinity,
  lastTime: -Infinity,
  maxSeconds: 0,
  slowestUid: null as string | null,
})

export type VerifyState = ReturnType<typeof createVerify>

export interface VerifyQuery {
  readonly counts: CountsView
  readonly metrics: { readonly [name: string]: unknown } | null
}

export interface Verdict {
  readonly tasks: number
  readonly events: number
  /** Tasks without a terminal event. They are a problem only if the session has ended. */
  readonly unfinished: number
  readonly hasEnded: boolean
  readonly sessionId: string | null
  /** Descriptions of the first 100 problems. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

const maxProblems = 100
/** Uids and event types in a damaged file may have any length. */
const maxProblemLength = 1000
/** Event types by stage, from the latest to the earliest stage. */
const typesBeforeEnd: readonly (readonly [stage: number, type: string])[] = [
  [stages.started, 'TaskStarted'],
  [stages.queued, 'TaskQueued'],
  [stages.submitted, 'TaskSubmitted'],
  [stages.created, 'TaskCreated'],
]
const counters = [
  ['tasks_submitted', 'submitted', 'TaskSubmitted'],
  ['tasks_started', 'started', 'TaskStarted'],
  ['tasks_completed', 'completed', 'TaskCompleted'],
  ['tasks_failed', 'failed', 'TaskFailed'],
  ['tasks_canceled', 'canceled', 'TaskCanceled'],
] as const

export const verify: Panel<VerifyState, VerifyQuery, Verdict> = {
  create: createVerify,

  take(state, event, step) {
    const { event_type: type } = event
    if (!state.hasBegun && type !== 'SessionStarted') {
      addProblem(state, `the first event is ${type}, not SessionStarted`)
    }
    if (state.hasBegun && type === 'SessionStarted') addProblem(state, 'a second SessionStarted')
    if (!state.hasBegun) state.isResumed = typeof event.attributes['resumed_from'] === 'string'
    state.hasBegun = true
    state.firstTime = Math.min(state.firstTime, event.event_time)
    state.lastTime = Math.max(state.lastTime, event.event_time)
    state.sessionId ??= event.session_id
    if (event.session_id !== state.sessionId && !isApplicationEvent(type)) {
      addProblem(state, `${type} is of session ${event.session_id}, not ${state.sessionId}`)
    }
    if (type === 'tutti.ResultReused') recordReuse(state, event)
    if (state.hasEnded) addProblem(state, `${type} comes after SessionEnded`)
    state.traceId ??= event.trace_id
    if (event.trace_id !== state.traceId && !isApplicationEvent(type))
      addProblem(state, `${type} has another trace_id`)
    if (type === 'SessionEnded') state.hasEnded = true
    if (step.stage !== 0) checkStep(state, event, step)
  },

  show(state, { counts, metrics }) {
    const atEnd = [...findTimeProblems(state), ...findEndProblems(state, counts, metrics)]
    return {
      tasks: counts.tasks,
      events: counts.events,
      unfinished: counts.open,
      hasEnded: state.hasEnded,
      sessionId: state.sessionId,
      problems: [...state.problems, ...atEnd].slice(0, maxProblems),
      problemCount: state.problemCount + atEnd.length,
    }
  },
}

/** Whether the application emitted the event, which may belong to another trace. */
const isApplicationEvent = (type: string): boolean =>
  type.includes('.') && !type.startsWith('tutti.')

/** Stages may be missing, but must not be repeated or follow a later stage. */
function checkStep(state: VerifyState, event: ViewEvent, step: TaskStep): void {
  const { event_type: type, event_time: time, task_id: uid } = event
  const { task, stage, before } = step
  if (hasEnded(stage)) checkEnd(state, event)
  if (hasEnded(before)) addProblem(state, `${uid}: ${type} comes after its end`)
  else if (before >= stage) addProblem(state, `${uid}: ${type} comes after ${latestType(before)}`)
  if (before !== 0 && time < valueAt(state.lastTimes, task)) {
    addProblem(state, `${uid}: ${type} happened before the task's previous event`)
  }
  setValue(state.lastTimes, task, hasEnded(stage) ? Number.NaN : time)
}

/** Only a file that continues another file can reuse results of a record. */
function recordReuse(state: VerifyState, { task_id: uid, source }: ViewEvent): void {
  if (uid === null) return
  if (source === 'record' && !state.isResumed) {
    addProblem(state, `${uid}: reuses the result of a record, but the file continues none`)
  }
  state.reused.set(uid, textOf(source))
}

function checkEnd(state: VerifyState, event: ViewEvent): void {
  const { event_type: type, task_id: uid, duration_seconds: seconds, attributes } = event
  if (typeof seconds === 'number' && seconds < 0) {
    addProblem(state, `${uid}: ${type} has a negative duration`)
  }
  if (typeof seconds === 'number' && seconds > state.maxSeconds) {
    state.maxSeconds = seconds
    state.slowestUid = uid
  }
  const isReported = uid !== null && state.reused.delete(uid)
  if (attributes['reused'] === true && !isReported) {
    addProblem(state, `${uid}: ${type} is reused without tutti.ResultReused`)
  }
}

const latestType = (passed: number): string =>
  typesBeforeEnd.find(([stage]) => (passed & stage) !== 0)?.[1] ?? ''

/**
 * Reports durations that even a small change of the clock cannot explain. A file that continues
 * another file is not checked, because a task may have started before it.
 */
function findTimeProblems(state: VerifyState): string[] {
  const { firstTime, lastTime, maxSeconds, slowestUid } = state
  const max = 2 * (lastTime - firstTime) + toleratedSeconds
  if (state.isResumed || slowestUid === null || !(maxSeconds > max)) return []
  const run = `the run, which took ${(lastTime - firstTime).toFixed(1)} s`
  return [`${slowestUid}: its duration of ${maxSeconds} s is longer than ${run}`]
}

const toleratedSeconds = 60

function findEndProblems(
  state: VerifyState,
  counts: CountsView,
  metrics: VerifyQuery['metrics'],
): string[] {
  if (counts.events === 0) return ['there is no event: this is not the record of a run']
  if (!state.hasEnded) return []
  const problems: string[] = []
  if (counts.open > 0) {
    const have = countText(counts.open, 'task has', 'tasks have')
    problems.push(`${have} no terminal event although the session has ended`)
  }
  if (metrics === null) return [...problems, 'there is no metric line']
  // Repeated events are in neither count, because `checkStep` has already reported them.
  for (const [counter, total, type] of counters) {
    const events = counts[total]
    if (metrics[counter] === events) continue
    problems.push(`${counter} is ${String(metrics[counter])}, but there are ${events} ${type}`)
  }
  const running = metrics['tasks_running']
  if (running !== 0) problems.push(`tasks_running is ${String(running)} at the end`)
  return problems
}

function addProblem(state: VerifyState, problem: string): void {
  state.problemCount++
  if (state.problems.length < maxProblems) state.problems.push(problem.slice(0, maxProblemLength))
}
