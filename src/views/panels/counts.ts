/**
 * Counts: the stages that each task has passed, and the totals. Determines the step that the pass
 * gives to every other panel. Uses 26 to 32 bytes per task with generated uids: the bytes of the
 * uid, its index (9 to 15 bytes) and one byte of stages.
 */

import {
  type Block,
  type Column,
  createColumn,
  createRows,
  setValue,
  toArray,
  valueAt,
} from '../columns.ts'
import { countCreation, countStage, createTotals, forgetStages, stageOf } from '../lifecycle.ts'
import { hasEnded, hasStarted, isQueued, stages, staysEnded } from '../lifecycle.ts'
import { type TaskTotals, validSeconds } from '../lifecycle.ts'
import { noDependencies, noStep, resumption, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import {
  beginFile,
  createTaskIndex,
  findInFile,
  type TaskIndex,
  findOrAddTask,
} from '../task-index.ts'

export interface CountsState {
  /** The number of all events, including those outside the lifecycle. */
  events: number
  readonly totals: TaskTotals
  readonly index: TaskIndex
  readonly passed: Column
}

export interface CountsView extends Readonly<TaskTotals> {
  readonly events: number
  readonly open: number
}

/** Like a `Panel`, but `take` also returns the step that the pass gives to all panels. */
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
    if (event.task_id === null) return toSessionStep(state, event, isFirst)
    if (stage === 0) return toAttemptStep(state, event.event_type, event.task_id)
    const task = findOrAddTask(state.index, event.task_id, event)
    const known = valueAt(state.passed, task)
    const dependencies = readDependencies(state, event, stage)
    if (known >= earlierFlag) return toRepeatedStep(state, event, { task, stage, dependencies })
    const after = countStage(state.totals, known, stage, validSeconds(event.duration_seconds))
    if (after !== known) setValue(state.passed, task, after)
    return { task, stage, before: known, after, earlier: 0, dependencies }
  },

  show({ events, totals }: CountsState): CountsView {
    const open = totals.tasks - totals.completed - totals.failed - totals.canceled
    return { ...totals, events, open }
  },
}

/** Returns only known tasks, because the record may lack dependencies that were created earlier. */
function readDependencies(
  { index }: CountsState,
  { attributes }: ViewEvent,
  stage: number,
): readonly number[] {
  if (stage === stages.failed) {
    const root = textOf(attributes['tutti.root_task'])
    return root === '' ? noDependencies : findKnownTasks(index, [root])
  }
  if (stage !== stages.created) return noDependencies
  const { dependencies } = attributes
  if (!Array.isArray(dependencies) || dependencies.length === 0) return noDependencies
  return findKnownTasks(index, dependencies)
}

const findKnownTasks = (index: TaskIndex, uids: readonly unknown[]): readonly number[] =>
  uids.map((uid) => findInFile(index, textOf(uid))).filter((task) => task !== -1)

/** A bit that marks stages of an earlier session, if the task has not run again. */
const earlierFlag = 128

function toRepeatedStep(
  { totals, passed }: CountsState,
  { duration_seconds, attributes }: ViewEvent,
  at: Pick<TaskStep, 'task' | 'stage' | 'dependencies'>,
): TaskStep {
  const earlier = valueAt(passed, at.task) - earlierFlag
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

/** Counts started tasks as submitted too, because the line of the submission may be damaged. */
export const countSubmitted = ({ submitted, started }: Readonly<TaskTotals>): number =>
  Math.max(submitted, started)

export const stagesOf = ({ passed }: CountsState, task: number): number =>
  valueAt(passed, task) & ~earlierFlag

/** The numbers of open tasks that are neither queued nor running. */
export interface OtherOpenTasks {
  unsubmitted: number
  /** Tasks that their backend has not queued, or whose queue event was lost. */
  submitted: number
  /** Tasks submitted in an earlier session that no later session has created again. */
  left: number
}

/**
 * Counts the open tasks that are neither queued nor running. Every other task is queued, running or
 * ended.
 */
export function countOtherOpen(state: CountsState): OtherOpenTasks {
  const { index, passed } = state
  const found: OtherOpenTasks = { unsubmitted: 0, submitted: 0, left: 0 }
  const { open, queued, running } = counts.show(state)
  if (open === queued + running) return found
  for (let task = 0; task < index.names.size; task++) {
    const known = stagesOf(state, task)
    if (known === 0 || hasEnded(known)) continue
    if ((known & ~stages.created) === 0) found.unsubmitted++
    else if (valueAt(passed, task) >= earlierFlag) found.left++
    else if (!hasStarted(known) && !isQueued(known)) found.submitted++
  }
  return found
}

/** Whether an earlier session left the task unfinished, and no later one has created it again. */
export const isInterrupted = ({ passed }: CountsState, task: number): boolean =>
  valueAt(passed, task) >= earlierFlag && (valueAt(passed, task) & stages.completed) === 0

/** Returns `stagesOf` and `isInterrupted` of all tasks as arrays. */
export function listStages(
  { index, passed: column }: CountsState,
  earlier?: { readonly passed: Block; readonly isLeft: Block },
): { readonly passed: Block; readonly isLeft: Block } {
  const passed = toArray(column, index.names.size, earlier?.passed)
  const isLeft = createRows('u8', passed.length, earlier?.isLeft)
  for (const [task, known] of passed.entries()) {
    if (known < earlierFlag) continue
    passed[task] = known - earlierFlag
    if ((known & stages.completed) === 0) isLeft[task] = 1
  }
  return { passed, isLeft }
}

function toSessionStep(state: CountsState, event: ViewEvent, isFirst: boolean): TaskStep {
  if (event.event_type !== 'SessionStarted' || !isResumed(event)) return noStep
  beginFile(state.index)
  // If this is the first event of the record, the file of the earlier session is missing.
  if (isFirst) return noStep
  state.totals.running = 0
  state.totals.queued = 0
  for (let task = 0; task < state.index.names.size; task++) {
    const passed = valueAt(state.passed, task)
    setValue(state.passed, task, passed | earlierFlag)
  }
  return resumption
}

const isResumed = ({ attributes }: ViewEvent): boolean =>
  typeof attributes['resumed_from'] === 'string'

const attemptEvents = new Set([
  'tutti.TaskResolved',
  'tutti.TaskAttempt',
  'tutti.AttemptStarted',
  'tutti.TaskProgress',
])

function toAttemptStep({ index, passed }: CountsState, eventType: string, uid: string): TaskStep {
  const task = attemptEvents.has(eventType) ? findInFile(index, uid) : -1
  if (task === -1) return noStep
  const known = valueAt(passed, task)
  return known >= earlierFlag ? noStep : { ...noStep, task, before: known, after: known }
}
