/** Describes the history of one task, for `tutti explain` and the dashboard. Pure. */

import { valueAt } from '../columns.ts'
import { type FailureExample, type FailureGroup, failures } from '../panels/failures.ts'
import { durationsByName } from '../panels/names.ts'
import { firstLine, secondsText, shortName } from '../readable.ts'
import { statsOrNull } from '../stats.ts'
import type { TaskExplanation, TaskView } from '../tasks.ts'
import { maxTitleLength, taskFailureLines } from './failure-lines.ts'
import { attemptLines, dependencyLines, historyLines, measureWaits } from './task-lines.ts'
import { remarkLines, type RunNow, waitingLines, type WaitTimes } from './task-lines.ts'

/** The limit of the session for tasks with this name. */
export interface TaskLimit {
  readonly concurrent: number | null
  readonly per_second: number | null
}

export interface TaskStory {
  readonly waits: WaitTimes
  readonly failure: FailureGroup | null
  /** The limit that the task may be waiting for now; `null` if there is none. */
  readonly limit: TaskLimit | null
  readonly nameLimit: TaskLimit | null
  /** The median running time of ended tasks with the same name. Set only while the task runs. */
  readonly usual: number | null
}

export const createTaskStory = (
  run: RunNow,
  task: TaskExplanation,
  nameLimit: TaskLimit | null,
): TaskStory => ({
  waits: measureWaits(task, run.pass.states.bounds.pauses),
  failure: findFailureGroup(run, task),
  limit: isWaitingForLimit(run, task) ? nameLimit : null,
  nameLimit,
  usual: task.runningFor === null ? null : medianSeconds(run, task),
})

/** `own` is the failure of the task itself; `null` if it is not known, or if it did not fail. */
export const taskStoryLines = (
  run: RunNow,
  task: TaskExplanation,
  { waits, failure, limit, nameLimit, usual }: TaskStory,
  own: FailureExample | null,
): string[] => [
  `${task.uid}  ${shortName(task.name)}  ${stateText(task)}`,
  ...(shortName(task.name) === task.name || task.name === '' ? [] : [`  ${task.name}`]),
  ...(task.scope === '' ? [] : [`  in scope ${firstLine(task.scope, maxTitleLength)}`]),
  ...historyLines(task, waits, nameLimit === null ? null : limitText(nameLimit)),
  ...dependencyLines(task),
  ...attemptLines(run, task),
  ...(usual === null ? [] : [`  usual for its name: ${secondsText(usual)} (median)`]),
  ...remarkLines(task),
  ...(failure === null ? [] : taskFailureLines(failure, own)),
  ...(limit === null ? [] : [`  waits for the limit of its name: ${limitText(limit)}`]),
  ...waitingLines(run, task),
]

export const stateText = ({
  state,
  isInterrupted,
}: Pick<TaskView, 'state' | 'isInterrupted'>): string =>
  isInterrupted ? `${state} (interrupted)` : state

function findFailureGroup(
  { pass }: RunNow,
  { failureGroup }: TaskExplanation,
): FailureGroup | null {
  if (failureGroup === 0) return null
  const { groups } = failures.show(pass.states.failures, { limit: Infinity })
  return groups.find(({ number }) => number === failureGroup) ?? null
}

function medianSeconds({ pass }: RunNow, { task }: TaskExplanation): number | null {
  const { names } = pass.states
  const durations = durationsByName(names)[valueAt(names.nameOfTask, task)]
  return statsOrNull(durations)?.p50 ?? null
}

/**
 * Whether the task may be waiting for a limit: it has a backend but is not in the backend's queue,
 * or its next attempt is due.
 */
function isWaitingForLimit({ state, now }: RunNow, task: TaskExplanation): boolean {
  const isDue = task.retryAt !== null && task.retryAt <= now
  return state === 'running' && (task.state === 'SUBMITTED' || isDue)
}

const limitText = ({ concurrent, per_second: perSecond }: TaskLimit): string =>
  [
    ...(concurrent === null ? [] : [`at most ${concurrent} at a time`]),
    ...(perSecond === null ? [] : [`at most ${perSecond} per second`]),
  ].join(', ')
