/** The table of tasks: selected by the query bar, sorted by any column, one page at a time. */

import { freeRows, type TextIndex } from '../../../views/columns.ts'
import { type TaskView, viewTask } from '../../../views/tasks.ts'
import type { Filter, TaskRowView, TasksPanelView, TasksPart } from '../../protocol.ts'
import type { RunMoment } from '../run-moment.ts'
import { createTaskFilter } from '../selection.ts'
import { shownText } from '../shown-texts.ts'
import { parseQuery } from './query-language.ts'
import { createLaneFinder, createRunReader, createStateReader } from './task-fields.ts'
import { createWaitReader, shownStates, type StateReader } from './task-fields.ts'
import { createTaskQuery } from './task-query.ts'
import { type Page, sortPage, type TaskOrder } from './task-order.ts'
import { compareTexts, textKeys } from './text-order.ts'

const maxRows = 500

export function showTasks(moment: RunMoment, filter: Filter, part: TasksPart): TasksPanelView {
  const parsed = parseQuery(part.q)
  const { limit, offset, isDescending } = part
  const page = { offset, limit: Math.min(limit, maxRows), isDescending }
  const isSelected = createTaskFilter(moment, filter)
  const isAsked = createTaskQuery(moment, parsed)
  const { tasks, passed } = moment.columns
  const found = new Uint32Array(tasks)
  let [matching, total] = [0, 0]
  for (let task = 0; task < tasks; task++) {
    if (passed[task] === 0) continue
    total++
    if (isSelected?.(task) === false || isAsked?.(task) === false) continue
    found[matching++] = task
  }
  const selected = found.subarray(0, matching)
  const shown =
    part.sort === 'order' ? cutPage(selected, page) : sort(moment, selected, part.sort, page)
  freeRows(found)
  const stateOf = createStateReader(moment)
  const rows = shown.map((task) => toRow(moment, stateOf, viewTask(moment.pass, task, moment.now)))
  return { rows, matching, total, problem: parsed.problem }
}

function sort(
  moment: RunMoment,
  tasks: Uint32Array,
  column: keyof typeof orders,
  page: Page,
): number[] {
  const order = orders[column](moment)
  const sorted = sortPage(tasks, order, page)
  freeRows(order.keys)
  return sorted
}

function cutPage(tasks: Uint32Array, { offset, limit, isDescending }: Page): number[] {
  if (!isDescending) return [...tasks.subarray(offset, offset + limit)]
  const last = Math.max(0, tasks.length - offset)
  return [...tasks.subarray(Math.max(0, last - limit), last)].toReversed()
}

type Order = (moment: RunMoment) => TaskOrder

const orders: Readonly<Record<Exclude<TasksPart['sort'], 'order'>, Order>> = {
  uid: ({ columns, pass }) => toTextOrder(columns.tasks, pass.counts.index.names, (task) => task),
  name: ({ columns, names }) =>
    toTextOrder(columns.tasks, names.names, (task) => columns.name[task] ?? 0),
  worker: (moment) => {
    const { lanes } = moment.pass.states.lanes
    return toTextOrder(moment.columns.tasks, lanes, createLaneFinder(moment))
  },
  state: (moment) => {
    const stateOf = createStateReader(moment)
    return toOrder(moment.columns.tasks, (task) => shownStates.indexOf(stateOf(task)))
  },
  waited: (moment) => toOrder(moment.columns.tasks, createWaitReader(moment)),
  ran: (moment) => toOrder(moment.columns.tasks, createRunReader(moment)),
}

function toOrder(tasks: number, keyOf: (task: number) => number): TaskOrder {
  const keys = new Float64Array(tasks)
  for (let task = 0; task < tasks; task++) keys[task] = keyOf(task)
  return { keys, compare: null }
}

/** `rowOf` returns the row of the task's text, or -1 if it has none. */
function toTextOrder(tasks: number, index: TextIndex, rowOf: (task: number) => number): TaskOrder {
  const keyOfRow = textKeys(index)
  const { keys } = toOrder(tasks, (task) => keyOfRow[rowOf(task)] ?? Number.NaN)
  freeRows(keyOfRow)
  const compare = (a: number, b: number): number => {
    const [one, other] = [rowOf(a), rowOf(b)]
    return one === other ? 0 : compareTexts(index, one, other)
  }
  return { keys, compare }
}

const maxError = 200

function toRow(moment: RunMoment, stateOf: StateReader, task: TaskView): TaskRowView {
  const { uid, name, scope, waited, ran, runningFor, workerId, nodeId, progress, errorType } = task
  const isRunning = moment.isRunning && runningFor !== null
  return {
    uid: shownText(uid),
    name: shownText(name),
    scope: shownText(scope),
    state: stateOf(task.task),
    waited,
    ran: ran ?? (isRunning ? runningFor : null),
    worker: shownText(workerId),
    nodeId: shownText(nodeId),
    progress:
      progress === null || !isRunning
        ? null
        : { fraction: progress.fraction, text: shownText(progress.text) },
    error: shownText(errorType, maxError),
  }
}
