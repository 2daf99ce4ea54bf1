/**
 * Counts: the stages that each task has passed, and the totals. Determines the step that the pass
 * gives to every other panel. 26 to 32 bytes per task with generated uids: the uid's bytes, its
 * index (9 to 15) and one byte of stages.
 */

import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { countCreation, countStage, createTotals, forgetStages, stageOf } from '../lifecycle.ts'
import { hasEnded, hasStarted, isQueued, stages, staysEnded } from '../lifecycle.ts'
import { type TaskTotals, validSeconds } from '../lifecycle.ts'
import { noDependencies, noStep, resumption, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import { beginFile, createTaskIndex, findHere, type TaskIndex, taskOf } from '../task-index.ts'

export interface CountsState {
  /** The number of all events, including those outside the lifecycle. */
  events: number
  readonly totals: TaskTotals
  readonly index: TaskIndex
  readonly passed: Column
}

/** The totals of a run over the events taken so far. */
export interface CountsView extends Readonly<TaskTotals> {
  readonly events: number
  /** The number of tasks that have not ended. */
  readonly open: number
}

/** Not a `Panel`, because its `take` also returns the step of the event. */
export const counts = {
  create: (): CountsState => ({
    events: 0,
    totals: createTotals(),
    index: createTaskIndex(),
    passed: createColumn('u8'),
  }),

  take(state: CountsState, event: ViewEvent): TaskStep {
    const isFirst = state.events++ === 0
    const stage = stageOf(event.event_type)
    if (event.task_id === null) return stepOutside(state, event, isFirst)
    if (stage === 0) return stepWithin(state, event.event_type, event.task_id)
    const task = taskOf(state.index, event.task_id, event)
    const known = valueAt(state.passed, task)
    const dependencies = dependenciesOf(state, event, stage)
    if (known >= ofEarlier) return stepAgain(state, event, { task, stage, dependencies })
    const after = countStage(state.totals, known, stage, validSeconds(event.duration_seconds))
    if (after !== known) setValue(state.passed, task, after)
    return { task, stage, before: known, after, earlier: 0, dependencies }
  },

  show({ events, totals }: CountsState): CountsView {
    const open = totals.tasks - totals.completed - totals.failed - totals.canceled
    return { ...totals, events, open }
  },
}

/** Returns known tasks only, because the record may lack dependencies created earlier. */
function dependenciesOf(
  { index }: CountsState,
  { attributes }: ViewEvent,
  stage: number,
): readonly number[] {
  if (stage === stages.failed) {
    const root = textOf(attributes['tutti.root_task'])
    return root === '' ? noDependencies : knownTasks(index, [root])
  }
  if (stage !== stages.created) return noDependencies
  const { dependencies } = attributes
  if (!Array.isArray(dependencies) || dependencies.length === 0) return noDependencies
  return knownTasks(index, dependencies)
}

const knownTasks = (index: TaskIndex, uids: readonly unknown[]): readonly number[] =>
  uids.map((uid) => findHere(index, textOf(uid))).filter((task) => task !== -1)

/** A flag next to the stages: they belong to an earlier session, and the task has not run again. */
const ofEarlier = 128

/** The step of an event whose task has stages from an earlier session. */
function stepAgain(
  { totals, passed }: CountsState,
  { duration_seconds, attributes }: ViewEvent,
  at: Pick<TaskStep, 'task' | 'stage' | 'dependencies'>,
): TaskStep {
  const earlier = valueAt(passed, at.task) - ofEarlier
  const isReused = attributes['reused'] === true
  if (staysEnded(earlier, at.stage, isReused)) {
    return { ...at, before: earlier, after: earlier, earlier: 0 }
  }
  forgetStages(totals, earlier)
  const missed = (earlier & stages.completed) === 0 ? 0 : countCreation(totals)
  const after = countStage(totals, missed, at.stage, validSeconds(duration_seconds))
  setValue(passed, at.task, after)
  return { ...at, before: 0, after, earlier }
}

/** A started task was submitted, even if the line of its submission is damaged. */
export const submittedIn = ({ submitted, started }: Readonly<TaskTotals>): number =>
  Math.max(submitted, started)

export const stagesOf = ({ passed }: CountsState, task: number): number =>
  valueAt(passed, task) & ~ofEarlier

/** Open tasks that are neither queued nor running in the totals. */
export interface OtherOpenTasks {
  /** Tasks without a backend. */
  unsubmitted: number
  /** Tasks whose backend has not queued them, or whose queue event was lost. */
  submitted: number
  /** Tasks submitted in an earlier session that no later session has created again. */
  left: number
}

/** Together with queued, running and ended tasks, these are all tasks. */
export function countOtherOpen(state: CountsState): OtherOpenTasks {
  const { index, passed } = state
  const found: OtherOpenTasks = { unsubmitted: 0, submitted: 0, left: 0 }
  const { open, queued, running } = counts.show(state)
  if (open === queued + running) return found
  for (let task = 0; task < index.names.size; task++) {
    const known = stagesOf(state, task)
    if (known === 0 || hasEnded(known)) continue
    if ((known & ~stages.created) === 0) found.unsubmitted++
    else if (valueAt(passed, task) >= ofEarlier) found.left++
    else if (!hasStarted(known) && !isQueued(known)) found.submitted++
  }
  return found
}

/** Whether an earlier session left the task unfinished and no later one has created it again. */
export const isInterrupted = ({ passed }: CountsState, task: number): boolean =>
  valueAt(passed, task) >= ofEarlier && (valueAt(passed, task) & stages.completed) === 0

function stepOutside(state: CountsState, event: ViewEvent, isFirst: boolean): TaskStep {
  if (event.event_type !== 'SessionStarted' || !isResumed(event)) return noStep
  beginFile(state.index)
  // First event of the record: the file of the earlier session is missing.
  if (isFirst) return noStep
  state.totals.running = 0
  state.totals.queued = 0
  for (let task = 0; task < state.index.names.size; task++) {
    const passed = valueAt(state.passed, task)
    setValue(state.passed, task, passed | ofEarlier)
  }
  return resumption
}

const isResumed = ({ attributes }: ViewEvent): boolean =>
  typeof attributes['resumed_from'] === 'string'

/** Event types that refer to a task but are outside its lifecycle. */
const withinTask = new Set([
  'tutti.TaskResolved',
  'tutti.TaskAttempt',
  'tutti.AttemptStarted',
  'tutti.TaskProgress',
])

/** The step of an event outside the lifecycle: it has a task but changes no stage. */
function stepWithin({ index, passed }: CountsState, eventType: string, uid: string): TaskStep {
  const task = withinTask.has(eventType) ? findHere(index, uid) : -1
  if (task === -1) return noStep
  const known = valueAt(passed, task)
  return known >= ofEarlier ? noStep : { ...noStep, task, before: known, after: known }
}
