/**
 * Single fields of any task, read without creating a view of the task. They have the values of
 * `viewTask`.
 */

import { activeTime } from '../../../views/bounds/bounds-state.ts'
import { toArray, valueAt } from '../../../views/columns.ts'
import { hasDuration, hasEnded, hasStarted, stages } from '../../../views/lifecycle.ts'
import { outcomeNumbers } from '../../../views/panels/lanes.ts'
import type { RunMoment } from '../run-moment.ts'

/** The states that the dashboard shows. In a run that is over, no task is running or queued. */
export const shownStates = [
  'RUNNING',
  'QUEUED',
  'SUBMITTED',
  'CREATED',
  'FAILED',
  'INTERRUPTED',
  'NOT BEGUN',
  'CANCELED',
  'DONE',
] as const
export type ShownState = (typeof shownStates)[number]
export type StateReader = (task: number) => ShownState
export type SecondsReader = (task: number) => number

export const createStateReader =
  ({ columns, isRunning }: RunMoment): StateReader =>
  (task) => {
    const passed = columns.passed[task] ?? 0
    if ((passed & stages.completed) !== 0) return 'DONE'
    if ((passed & stages.failed) !== 0) return 'FAILED'
    if ((passed & stages.canceled) !== 0) return 'CANCELED'
    if (columns.isLeft[task] === 1) return 'INTERRUPTED'
    if (!isRunning) return hasStarted(passed) ? 'INTERRUPTED' : 'NOT BEGUN'
    if (hasStarted(passed)) return 'RUNNING'
    if ((passed & stages.queued) !== 0) return 'QUEUED'
    return (passed & stages.submitted) === 0 ? 'CREATED' : 'SUBMITTED'
  }

/** Finds the lane (worker) of a task's latest attempt; -1 if it has none. */
export function createLaneFinder({ columns, pass }: RunMoment): (task: number) => number {
  const latest = toArray(pass.states.lanes.latestOfTask, columns.tasks)
  return (task) => columns.attempts.lane[(latest[task] ?? 0) - 1] ?? -1
}

/** The waiting time; NaN if it is not known. */
export function createWaitReader({ columns, pass, now }: RunMoment): SecondsReader {
  const { pauses } = pass.states.bounds
  const { ready, started, ended, isLeft } = columns
  return (task) => {
    const from = ready[task] ?? Number.NaN
    const startTime = started[task] ?? Number.NaN
    const over = ended[task] ?? Number.NaN
    const open = isLeft[task] === 1 ? Number.NaN : now
    const until = Number.isNaN(startTime) ? (Number.isNaN(over) ? open : over) : startTime
    return Math.max(0, activeTime(pauses, until) - activeTime(pauses, from))
  }
}

/** The running time, for a running task until now; NaN if it is not known. */
export function createRunReader({ columns, pass, now, isRunning }: RunMoment): SecondsReader {
  const { names, bounds, lanes } = pass.states
  const { tasks, passed, started, ended, attempts } = columns
  // The other columns are needed for few tasks, so that copies of them would be a waste of memory.
  const durations = toArray(names.durations, tasks)
  const { pauses } = bounds
  return (task) => {
    const stage = passed[task] ?? 0
    if (hasStarted(stage) && hasEnded(stage)) {
      const hasOwn = hasDuration(stage)
      const recorded = hasOwn ? (durations[task] ?? 0) : valueAt(names.canceledAfter, task)
      if (hasOwn ? !Number.isNaN(recorded) : recorded > 0) return recorded
      const [from, to] = [started[task] ?? 0, ended[task] ?? 0]
      const life = Math.max(0, activeTime(pauses, to) - activeTime(pauses, from))
      return Math.max(0, life - valueAt(names.waits, task))
    }
    const attempt = valueAt(lanes.latestOfTask, task) - 1
    if (!isRunning || attempts.outcome[attempt] !== outcomeNumbers.running) return Number.NaN
    return Math.max(0, now - (attempts.start[attempt] ?? now))
  }
}
