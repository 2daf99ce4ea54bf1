/** The attempts inside a selected range, for each name. */

import { textAt } from '../../../views/columns.ts'
import { isFailedOutcome } from '../../../views/panels/lanes.ts'
import { statsInPlace } from '../../../views/stats.ts'
import type { Filter, InsideName } from '../../protocol.ts'
import { shownText } from '../shown-texts.ts'
import type { RunMoment } from '../run-moment.ts'
import { createAttemptFilter } from '../selection.ts'

const maxNames = 200

/**
 * Returns the names whose attempts overlap the range, with the most time in it first. `seconds` is
 * the time inside the range; the other durations are those of whole attempts.
 */
export function listInside(moment: RunMoment, filter: Filter): InsideName[] {
  const { columns, names, now } = moment
  const { from = -Infinity, to = Infinity } = filter
  const { name, attempts } = columns
  const { size, start, end, outcome, task } = attempts
  const isSelected = createAttemptFilter(moment, filter)
  const found = new Uint32Array(size)
  const counts = new Uint32Array(names.names.size)
  let total = 0
  for (let at = 0; at < size; at++) {
    if ((start[at] ?? 0) > to || (end[at] ?? 0) < from || isSelected?.(at) === false) continue
    found[total++] = at
    const number = name[task[at] ?? 0] ?? 0
    counts[number] = (counts[number] ?? 0) + 1
  }
  const durations = Array.from(counts, (count) => new Float64Array(count))
  const [filled, failures] = [new Uint32Array(counts.length), new Uint32Array(counts.length)]
  const seconds = new Float64Array(counts.length)
  for (let row = 0; row < total; row++) {
    const at = found[row] ?? 0
    const number = name[task[at] ?? 0] ?? 0
    const [began, ended] = [start[at] ?? 0, Math.min(now, end[at] ?? 0)]
    const nameDurations = durations[number]
    const next = filled[number] ?? 0
    if (nameDurations !== undefined) nameDurations[next] = Math.max(0, ended - began)
    filled[number] = next + 1
    const inRange = Math.min(to, ended) - Math.max(from, began)
    seconds[number] = (seconds[number] ?? 0) + Math.max(0, inRange)
    if (isFailedOutcome(outcome[at] ?? 0)) failures[number] = (failures[number] ?? 0) + 1
  }
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
