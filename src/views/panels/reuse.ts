/**
 * Reuse: checks that a resumed run did not repeat completed work. After a task is DONE in one
 * session and its value was stored, later sessions may only reuse the value. The exception is a
 * different task: its definition was changed, or its generated uid was given to another task. Uses
 * 10 bytes per task.
 */

import { crc32 } from 'node:zlib'
import { codeDigestOf, isMarked, removeMark } from '../../foundation/ids.ts'
import { createColumn, setValue, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { type Panel, resumption, type TaskStep, textOf, type ViewEvent } from '../panel.ts'

const createReuse = () => ({
  /** A value of `done`: when the task was DONE, and whether the result was stored. */
  done: createColumn('u8'),
  /** The hash of each task's definition in this session; 0 if there is none. */
  definition: createColumn('u32'),
  /** The hash of the definition with which each task was DONE; 0 if there is none. */
  doneDefinition: createColumn('u32'),
  /** 1 for tasks that ended with a reused result in this session. */
  reused: createColumn('u8'),
  /** Hashes of functions whose code cannot be distinguished; see `definition-hash.ts`. */
  ambiguous: new Set<number>(),
  tasks: 0,
  problems: [] as string[],
  problemCount: 0,
})

export type ReuseState = ReturnType<typeof createReuse>

export interface ReuseView {
  readonly problems: readonly string[]
  readonly problemCount: number
}

const done = { here: 1, keptHere: 2, keptEarlier: 3 } as const

const maxProblems = 100
const maxProblemLength = 1000

export const reuse: Panel<ReuseState, void, ReuseView> = {
  create: createReuse,

  take(state, event, step) {
    if (step === resumption) endSession(state)
    const { task, stage } = step
    if (stage === 0) return
    state.tasks = Math.max(state.tasks, task + 1)
    if (stage === stages.created) recordDefinition(state, event, step)
    const isReuse = stage === stages.completed && event.attributes['reused'] === true
    if (isReuse) setValue(state.reused, task, 1)
    // A task that is canceled before it starts keeps its earlier state.
    const isWork = (stage & (stages.started | stages.completed | stages.failed)) !== 0 && !isReuse
    if (isWork && isDoneEarlier(state, task)) {
      state.problemCount++
      const type = event.event_type
      const problem = `${event.task_id}: ${type} although an earlier session has it DONE`
      if (state.problems.length < maxProblems) {
        state.problems.push(problem.slice(0, maxProblemLength))
      }
    } else if (isWork) {
      // The task runs again, so its new result replaces any earlier result.
      setValue(state.done, task, stage === stages.completed ? done.here : 0)
      setValue(state.doneDefinition, task, valueAt(state.definition, task))
    }
  },

  show: ({ problems, problemCount }) => ({ problems: [...problems], problemCount }),
}

/**
 * Records the definition of a task. The task may run again if one of its dependencies does, or if
 * its code cannot be distinguished.
 */
function recordDefinition(
  state: ReuseState,
  event: ViewEvent,
  { task, dependencies }: TaskStep,
): void {
  const hash = textOf(event.attributes['definition_hash'])
  setValue(state.definition, task, hash === '' ? 0 : crc32(removeMark(hash)))
  const code = crc32(codeDigestOf(hash))
  if (isMarked(hash)) state.ambiguous.add(code)
  const mayRun =
    state.ambiguous.has(code) || dependencies.some((one) => valueAt(state.reused, one) === 0)
  if (mayRun) setValue(state.done, task, 0)
}

/** Call this when the value of a task that is DONE in this session was stored. */
export function markStored(state: ReuseState, task: number): void {
  if (valueAt(state.done, task) === done.here) setValue(state.done, task, done.keptHere)
}

/** A missing definition matches any definition. */
function isDoneEarlier(state: ReuseState, task: number): boolean {
  if (valueAt(state.done, task) !== done.keptEarlier) return false
  const [before, now] = [valueAt(state.doneDefinition, task), valueAt(state.definition, task)]
  return before === now || before === 0 || now === 0
}

function endSession(state: ReuseState): void {
  for (let task = 0; task < state.tasks; task++) {
    const value = valueAt(state.done, task)
    setValue(state.definition, task, 0)
    setValue(state.reused, task, 0)
    if (value === done.here) setValue(state.done, task, 0)
    if (value === done.keptHere) setValue(state.done, task, done.keptEarlier)
  }
}
