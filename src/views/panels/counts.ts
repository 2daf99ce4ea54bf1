/**
 * Counts: which stages each task has passed, and the totals. It determines the step that the pass
 * gives to every other panel. 26 to 32 bytes a task with generated uids: the uid's bytes, its index
 * (9 to 15) and one byte of stages.
 */

import { type Column, createColumn, createTextIndex, findText, indexOf } from '../columns.ts'
import { setValue, type TextIndex, valueAt } from '../columns.ts'
import { countStage, createTotals, forgetStages, stageOf, stages } from '../lifecycle.ts'
import { staysEnded, type TaskTotals, validSeconds } from '../lifecycle.ts'
import { noDependencies, noStep, resumption, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'

export interface CountsState {
  /** All events, also those outside the lifecycle. */
  events: number
  readonly totals: TaskTotals
  readonly uids: TextIndex
  readonly passed: Column
}

/** The totals of a run, as far as its events go. */
export interface CountsView extends Readonly<TaskTotals> {
  readonly events: number
  /** Tasks that have not ended. */
  readonly open: number
}

/** Not quite a panel: its `take` also returns the step that the event makes. */
export const counts = {
  create: (): CountsState => ({
    events: 0,
    totals: createTotals(),
    uids: createTextIndex(),
    passed: createColumn('u8'),
  }),

  take(state: CountsState, event: ViewEvent): TaskStep {
    const isFirst = state.events++ === 0
    const stage = stageOf(event.event_type)
    if (event.task_id === null) return isFirst ? noStep : stepOutside(state, event)
    if (stage === 0) return stepWithin(state, event.event_type, event.task_id)
    const task = indexOf(state.uids, event.task_id)
    const known = valueAt(state.passed, task)
    const earlier = known < interrupted ? 0 : known - interrupted
    if (known >= interrupted) forgetStages(state.totals, earlier)
    const before = known < interrupted ? known : 0
    const after = countStage(state.totals, before, stage, validSeconds(event.duration_seconds))
    if (after !== known) setValue(state.passed, task, after)
    const dependencies = stage === stages.created ? dependenciesOf(state, event) : noDependencies
    return { task, stage, before, after, earlier, dependencies }
  },

  show({ events, totals }: CountsState): CountsView {
    const open = totals.tasks - totals.completed - totals.failed - totals.canceled
    return { ...totals, events, open }
  },
}

/** A task is created after those that it waits for; what the record does not have is left out. */
function dependenciesOf({ uids }: CountsState, { attributes }: ViewEvent): readonly number[] {
  const { dependencies } = attributes
  if (!Array.isArray(dependencies) || dependencies.length === 0) return noDependencies
  return dependencies.map((uid) => findText(uids, textOf(uid))).filter((task) => task !== -1)
}

/** Beside the stages of a task that an earlier session of the run had, and did not complete. */
const interrupted = 128

/** The stages that a task has passed. */
export const stagesOf = ({ passed }: CountsState, task: number): number =>
  valueAt(passed, task) & ~interrupted

/** Whether it is of an earlier session of the run, was not completed, and did not come again. */
export const isInterrupted = ({ passed }: CountsState, task: number): boolean =>
  valueAt(passed, task) >= interrupted

function stepOutside(state: CountsState, event: ViewEvent): TaskStep {
  if (event.event_type !== 'SessionStarted' || !isResumed(event)) return noStep
  state.totals.running = 0
  state.totals.queued = 0
  for (let task = 0; task < state.uids.size; task++) {
    const passed = valueAt(state.passed, task)
    if (!staysEnded(passed)) setValue(state.passed, task, passed | interrupted)
  }
  return resumption
}

const isResumed = ({ attributes }: ViewEvent): boolean =>
  typeof attributes['resumed_from'] === 'string'

/** What the library reports about a task between its lifecycle events. */
const withinTask = new Set([
  'tutti.TaskResolved',
  'tutti.TaskAttempt',
  'tutti.AttemptStarted',
  'tutti.TaskProgress',
])

/** Names the task, and changes nothing. */
function stepWithin({ uids, passed }: CountsState, eventType: string, uid: string): TaskStep {
  const task = withinTask.has(eventType) ? findText(uids, uid) : -1
  if (task === -1) return noStep
  const known = valueAt(passed, task)
  return known >= interrupted ? noStep : { ...noStep, task, before: known, after: known }
}
