/**
 * Sorts the tasks of one page of the table, in linear time for a million tasks. Pure.
 */

import { freeRows } from '../../../views/columns.ts'
import { select } from '../../../views/stats.ts'

/** The order of tasks by a number per task. */
export interface TaskOrder {
  /** Indexed by the number of the task. NaN comes last in both directions. */
  readonly keys: Float64Array
  /** Compares tasks with equal keys. `null` keeps the order of creation. */
  readonly compare: ((a: number, b: number) => number) | null
}

export interface Page {
  readonly offset: number
  readonly limit: number
  readonly isDescending: boolean
}

/** Returns the tasks of a page. `tasks` are in the order of creation. */
export function sortPage(tasks: Uint32Array, { keys, compare }: TaskOrder, page: Page): number[] {
  const count = tasks.length
  const first = Math.min(count, Math.max(0, page.offset))
  const last = Math.min(count, first + Math.max(0, page.limit))
  if (first === last) return []
  const sign = page.isDescending ? -1 : 1
  const signed = new Float64Array(count)
  for (let at = 0; at < count; at++) {
    const key = keys[tasks[at] ?? 0] ?? Number.NaN
    signed[at] = Number.isNaN(key) ? Infinity : sign * key
  }
  const values = signed.slice()
  select(values, 0, count - 1, first)
  const low = values[first] ?? 0
  select(values, first, count - 1, last - 1)
  const high = values[last - 1] ?? 0
  freeRows(values)
  let countBelow = 0
  const [equalLow, between, equalHigh]: [number[], number[], number[]] = [[], [], []]
  for (let at = 0; at < count; at++) {
    const key = signed[at] ?? 0
    if (key > high) continue
    if (key < low) countBelow++
    else (key === low ? equalLow : key === high ? equalHigh : between).push(at)
  }
  const compareTasks = (a: number, b: number): number =>
    compare === null ? a - b : sign * compare(tasks[a] ?? 0, tasks[b] ?? 0) || a - b
  between.sort((a, b) => (signed[a] ?? 0) - (signed[b] ?? 0) || compareTasks(a, b))
  if (compare !== null) for (const equal of [equalLow, equalHigh]) equal.sort(compareTasks)
  freeRows(signed)
  const rows = [...equalLow.slice(first - countBelow, last - countBelow), ...between, ...equalHigh]
  return rows.slice(0, last - first).map((at) => tasks[at] ?? 0)
}
