/**
 * Reuse: whether a resumed run kept to what was done. After a task is DONE in one session with a
 * value that was kept, later sessions may only reuse it, unless the task has become another one: it
 * was changed, or its generated uid went to another task. 10 bytes a task.
 */

import { crc32 } from 'node:zlib'
import { codePartOf, isMarked, unmarked } from '../../foundation/ids.ts'
import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { type Panel, resumption, type TaskStep, textOf, type ViewEvent } from '../panel.ts'

export interface ReuseState {
  /** For each task: `done` when it is DONE in this session, then whether its value was kept. */
  readonly done: Column
  /** A digest of its definition in this session, and of the one that was DONE; 0 without one. */
  readonly definition: Column
  readonly doneDefinition: Column
  /** 1 for tasks whose end in this session is a reused one. */
  readonly reused: Column
  /** Digests of the code of functions that were not told apart; see `definition-hash.ts`. */
  readonly ambiguous: Set<number>
  tasks: number
  readonly problems: string[]
  problemCount: number
}

export interface ReuseView {
  /** What is wrong, in words; at most 100 of them. */
  readonly problems: readonly string[]
  readonly problemCount: number
}

const done = { here: 1, keptHere: 2, keptEarlier: 3 } as const

const mostProblems = 100
const longestProblem = 1000

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
    // One that is canceled before it begins stays as it was.
    const isWork = (stage & (stages.started | stages.completed | stages.failed)) !== 0 && !isReuse
    if (isWork && isDoneEarlier(state, task)) {
      state.problemCount++
      const type = event.event_type
      const problem = `${event.task_id}: ${type} although an earlier session has it DONE`
      if (state.problems.length < mostProblems) {
        state.problems.push(problem.slice(0, longestProblem))
      }
    } else if (isWork) {
      // Whatever it was before: it is run anew.
      setValue(state.done, task, stage === stages.completed ? done.here : 0)
      setValue(state.doneDefinition, task, valueAt(state.definition, task))
    }
  },

  show: ({ problems, problemCount }) => ({ problems: [...problems], problemCount }),
}

/** What depends on a task that runs again runs again; so does what cannot be told from others. */
function create(state: ReuseState, event: ViewEvent, { task, dependencies }: TaskStep): void {
  const hash = textOf(event.attributes['definition_hash'])
  setValue(state.definition, task, hash === '' ? 0 : crc32(unmarked(hash)))
  const code = crc32(codePartOf(hash))
  if (isMarked(hash)) state.ambiguous.add(code)
  const mayRun =
    state.ambiguous.has(code) || dependencies.some((one) => valueAt(state.reused, one) === 0)
  if (mayRun) setValue(state.done, task, 0)
}

/** The value of a task that is DONE in this session is beside its file. */
export function markKept(state: ReuseState, task: number): void {
  if (valueAt(state.done, task) === done.here) setValue(state.done, task, done.keptHere)
}

/** Without a definition on either side the uid alone decides. */
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
