/**
 * Reuse: whether a resumed run kept to what was done. After a task is DONE in one session, later
 * sessions may only reuse its result. 1 byte a task.
 */

import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { type Panel, resumption } from '../panel.ts'

export interface ReuseState {
  /** For each task: 1 when it is DONE in this session, 2 when it was in an earlier one. */
  readonly done: Column
  tasks: number
  readonly problems: string[]
  problemCount: number
}

export interface ReuseView {
  /** What is wrong, in words; at most 100 of them. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

const mostProblems = 100
const longestProblem = 1000

export const reuse: Panel<ReuseState, void, ReuseView> = {
  create: () => ({ done: createColumn('u8'), tasks: 0, problems: [], problemCount: 0 }),

  take(state, event, step) {
    if (step === resumption) endSession(state)
    const { task, stage, after, before } = step
    if (stage === 0) return
    if (stage === stages.completed && after !== before) setValue(state.done, task, 1)
    state.tasks = Math.max(state.tasks, task + 1)
    const isReuse = stage === stages.completed && event.attributes['reused'] === true
    const isWork = stage === stages.started || (hasEnded(stage) && !isReuse)
    if (!isWork || valueAt(state.done, task) !== 2) return
    state.problemCount++
    const problem = `${event.task_id}: ${event.event_type} although an earlier session has it DONE`
    if (state.problems.length < mostProblems) state.problems.push(problem.slice(0, longestProblem))
  },

  show: ({ problems, problemCount }) => ({ problems: [...problems], problemCount }),
}

function endSession({ done, tasks }: ReuseState): void {
  for (let task = 0; task < tasks; task++) {
    if (valueAt(done, task) === 1) setValue(done, task, 2)
  }
}
