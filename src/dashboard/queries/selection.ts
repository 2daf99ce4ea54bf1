/** The tasks and attempts that the filter of the page selects. Pure. */

import { eachText, findText } from '../../views/columns.ts'
import { shortName } from '../../views/readable.ts'
import type { Filter } from '../protocol.ts'
import type { RunMoment } from './run-moment.ts'
import { shownText } from './shown-texts.ts'

/** Selects tasks by number. */
export type TaskFilter = (task: number) => boolean

/** Returns an array with a 1 at the index of each name that matches; `null` if no name is given. */
export function findNames(
  { names: { names } }: RunMoment,
  name: string | undefined,
): Uint8Array | null {
  if (name === undefined) return null
  const found = new Uint8Array(names.size)
  const exact = findText(names, name)
  if (exact !== -1) found[exact] = 1
  else {
    eachText(names, (text, number) => {
      if (shownText(text) === name || shortName(text) === name) found[number] = 1
    })
  }
  return found
}
/** The tasks that the filter of the page selects; `null` if it selects all. */
export function createTaskFilter(moment: RunMoment, filter: Filter): TaskFilter | null {
  const names = findNames(moment, filter.name)
  const { from = -Infinity, to = Infinity } = filter
  const isRange = from > -Infinity || to < Infinity
  if (names === null && !isRange) return null
  const { name } = moment.columns
  const isInside = isRange ? createRangeFilter(moment, from, to) : null
  return (task) =>
    (names === null || names[name[task] ?? 0] === 1) && (isInside === null || isInside(task))
}

/**
 * Whether the task ran in the range. A task that ended without running counts if its end is in the
 * range. A task that still waits counts if a part of its wait is in the range.
 */
function createRangeFilter({ columns, now }: RunMoment, from: number, to: number): TaskFilter {
  const { created, started, ended } = columns
  return (task) => {
    // The comparisons are false for NaN, the time of a stage that was not reached.
    const [begun, over] = [started[task] ?? Number.NaN, ended[task] ?? Number.NaN]
    if (begun > to || over < from) return false
    if (begun <= to) return over >= from || (Number.isNaN(over) && now >= from)
    return over <= to || (Number.isNaN(over) && (created[task] ?? 0) <= to && now >= from)
  }
}

/** Returns a predicate for rows of attempts with the filtered name; `null` if all are selected. */
export function createAttemptFilter(
  moment: RunMoment,
  filter: Filter,
): ((at: number) => boolean) | null {
  const { name, attempts } = moment.columns
  const { task } = attempts
  const names = findNames(moment, filter.name)
  return names === null ? null : (at) => names[name[task[at] ?? 0] ?? 0] === 1
}
