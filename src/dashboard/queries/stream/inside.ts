/** The attempts inside a selected range, for each name. */

import { textAt } from '../../../views/columns.ts'
import { isFailedOutcome } from '../../../views/panels/lanes.ts'
import { statsInPlace } from '../../../views/stats.ts'
import type { Filter, InsideName } from '../../protocol.ts'
import { shownText } from '../shown-texts.ts'
import type { RunMoment } from '../run-moment.ts'
import { createAttemptFilter } from '../selection.ts'
import { valuesByGroup as found } from '../values-by-group.ts'

const maxNames = 200

/**
 * Returns the names whose attempts overlap the range. Names with the most time in the range come
 * first. `seconds` is the time inside the range; the other durations are those of whole attempts.
 */
export function listInside(moment: RunMoment, filter: Filter): InsideName[] {
  const { columns, names, now } = moment
  const { from = -Infinity, to = Infinity } = filter
  const { name, attempts } = columns
  const { size, start, end, outcome, task } = attempts
  const isSelected = createAttemptFilter(moment, filter)
  const nameOf = (at: number): number => name[task[at] ?? 0] ?? 0
  const failures = new Uint32Array(names.names.size)
  const seconds = new Float64Array(names.names.size)
  found.start(size, names.names.size)
  for (let at = 0; at < size; at++) {
    const began = start[at] ?? 0
    if (began > to || (end[at] ?? 0) < from || isSelected?.(at) === false) continue
    const number = nameOf(at)
    found.add(at, number)
    const inRange = Math.min(to, now, end[at] ?? 0) - Math.max(from, began)
    seconds[number] = (seconds[number] ?? 0) + Math.max(0, inRange)
    if (isFailedOutcome(outcome[at] ?? 0)) failures[number] = (failures[number] ?? 0) + 1
  }
  const secondsOf = (at: number): number =>
    Math.max(0, Math.min(now, end[at] ?? 0) - (start[at] ?? 0))
  const durations = found.collect(nameOf, secondsOf)
  return durations
    .map((own, number) => ({ own, number, sum: seconds[number] ?? 0 }))
    .filter(({ own }) => own.length > 0)
    .toSorted((a, b) => b.sum - a.sum)
    .slice(0, maxNames)
    .map(({ own, number, sum }) => {
      const { p50, p95, max } = statsInPlace(own)
      return {
        name: shownText(textAt(names.names, number)),
        count: own.length,
        failures: failures[number] ?? 0,
        seconds: sum,
        p50,
        p95,
        max,
      }
    })
}
