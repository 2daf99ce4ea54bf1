/** The attempts inside a selected range, for each name. */

import { textAt } from '../../../views/columns.ts'
import { failedOutcomes } from '../../../views/panels/lanes.ts'
import { statsInPlace } from '../../../views/stats.ts'
import type { Filter, InsideName } from '../../protocol.ts'
import { shownText } from '../shown-texts.ts'
import type { RunMoment } from '../run-moment.ts'
import { selectAttempts } from '../selection.ts'

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
  const isSelected = selectAttempts(moment, filter)
  const found = new Uint32Array(size)
  const counts = new Uint32Array(names.names.size)
  let total = 0
  for (let at = 0; at < size; at++) {
    if ((start[at] ?? 0) > to || (end[at] ?? 0) < from || isSelected?.(at) === false) continue
    found[total++] = at
    const number = name[task[at] ?? 0] ?? 0
    counts[number] = (counts[number] ?? 0) + 1
  }
  const sums = Array.from(counts, (count) => ({ ...noSums, durations: new Float64Array(count) }))
  for (const at of found.subarray(0, total)) {
    const own = sums[name[task[at] ?? 0] ?? 0]
    if (own === undefined) continue
    const [began, ended] = [start[at] ?? 0, Math.min(now, end[at] ?? 0)]
    own.durations[own.count++] = Math.max(0, ended - began)
    own.seconds += Math.max(0, Math.min(to, ended) - Math.max(from, began))
    if (failedOutcomes.has(outcome[at] ?? 0)) own.failures++
  }
  return sums
    .map((own, number) => ({ ...own, number }))
    .filter(({ count }) => count > 0)
    .toSorted((a, b) => b.seconds - a.seconds)
    .slice(0, maxNames)
    .map(({ number, count, failures, seconds, durations }) => {
      const { p50, p95, max } = statsInPlace(durations)
      const shown = shownText(textAt(names.names, number))
      return { name: shown, count, failures, seconds, p50, p95, max }
    })
}

const noSums = { count: 0, failures: 0, seconds: 0 }
