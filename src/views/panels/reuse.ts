/**
 * Reuse: checks that a resumed run did not repeat completed work. After a task is DONE in one
 * session with a stored value, later sessions may only reuse it, unless it is a different task: its
 * definition was changed, or its generated uid was given to another task. 10 bytes per task.
 */

import { crc32 } from 'node:zlib'
import { codePartOf, isMarked, unmarked } from '../../foundation/ids.ts'
import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { type Panel, resumption, type TaskStep, textOf, type ViewEvent } from '../panel.ts'

export interface ReuseState {
  /** For each task, a value of `done`: when it was DONE, and whether the result was stored. */
  readonly done: Column
  /** Hashes of the definition in this session and of the definition that was DONE; 0 for none. */
  readonly definition: Column
  readonly doneDefinition: Column
  /** 1 for tasks that ended with a reused result in this session. */
  readonly reused: Column
  /** Hashes of functions whose code cannot be distinguished; see `definition-hash.ts`. */
  readonly ambiguous: Set<number>
  tasks: number
  readonly problems: string[]
  problemCount: number
}

export interface ReuseView {
  /** Descriptions of the problems; at most 100. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

const done = { here: 1, keptHere: 2, keptEarlier: 3 } as const

const maxProblems = 100
const maxProblemLength = 1000

export const reuse: Panel<ReuseState, void, ReuseView> = {
  create: () => ({
    done: createColumn('u8'),
    definition: createColumn('u32'),
    doneDefinition: createColumn('u32'),
    reused: createColumn('u8'),
    ambiguous: new Set(),
    tasks: 0,
    problems: [],
    problemCount: 0,
  }),

  take(state, event, step) {
    if (step === resumption) endSession(state)
    const { task, stage } = step
    if (stage === 0) return
    state.tasks = Math.max(state.tasks, task + 1)
    if (stage === stages.created) create(state, event, step)
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
      // The task runs again, which replaces any earlier result.
      setValue(state.done, task, stage === stages.completed ? done.here : 0)
      setValue(state.doneDefinition, task, valueAt(state.definition, task))
    }
  },

  show: ({ problems, problemCount }) => ({ problems: [...problems], problemCount }),
}

/** A task may run again if a dependency does, or if its code cannot be distinguished. */
function create(state: ReuseState, event: ViewEvent, { task, dependencies }: TaskStep): void {
  const hash = textOf(event.attributes['definition_hash'])
  setValue(state.definition, task, hash === '' ? 0 : crc32(unmarked(hash)))
  const code = crc32(codePartOf(hash))
  if (isMarked(hash)) state.ambiguous.add(code)
  const mayRun =
    state.ambiguous.has(code) || dependencies.some((one) => valueAt(state.reused, one) === 0)
  if (mayRun) setValue(state.done, task, 0)
}

/** Call this when the value of a task that is DONE in this session was stored. */
export function markKept(state: ReuseState, task: number): void {
  if (valueAt(state.done, task) === done.here) setValue(state.done, task, done.keptHere)
}

/** Compares the definitions; if one is missing, only the uid counts. */
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
