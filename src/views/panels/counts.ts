/**
 * Counts: which stages each task has passed, and the totals. It determines the step that the pass
 * gives to every other panel. 26 to 32 bytes a task with generated uids: the uid's bytes, its index
 * (9 to 15) and one byte of stages.
 */

import { type Column, createColumn, createTextIndex, findText, indexOf } from '../columns.ts'
import { setValue, type TextIndex, valueAt } from '../columns.ts'
import { countStage, createTotals, stageOf, type TaskTotals, validSeconds } from '../lifecycle.ts'
import { noStep, type TaskStep, type ViewEvent } from '../panel.ts'

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
    passed: createColumn(1),
  }),

  take(state: CountsState, event: ViewEvent): TaskStep {
    state.events++
    const stage = stageOf(event.event_type)
    if (event.task_id === null) return noStep
    if (stage === 0) return stepWithin(state, event.event_type, event.task_id)
    const task = indexOf(state.uids, event.task_id)
    const before = valueAt(state.passed, task)
    const after = countStage(state.totals, before, stage, validSeconds(event.duration_seconds))
    if (after !== before) setValue(state.passed, task, after)
    return { task, stage, before, after }
  },

  show({ events, totals }: CountsState): CountsView {
    const open = totals.tasks - totals.completed - totals.failed - totals.canceled
    return { ...totals, events, open }
  },
}

/** What the library reports about a task between its lifecycle events. */
const withinTask = new Set(['tutti.TaskAttempt', 'tutti.AttemptStarted', 'tutti.TaskProgress'])

/** Names the task, and changes nothing. */
function stepWithin({ uids, passed }: CountsState, eventType: string, uid: string): TaskStep {
  const task = withinTask.has(eventType) ? findText(uids, uid) : -1
  if (task === -1) return noStep
  const stages = valueAt(passed, task)
  return { task, stage: 0, before: stages, after: stages }
}
