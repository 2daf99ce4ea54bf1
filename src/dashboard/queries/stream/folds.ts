/** Times in which nothing ran, which the time axis folds. Pure. */

import { outcomeNumbers } from '../../../views/panels/lanes.ts'
import type { HeadView } from '../../protocol.ts'
import type { RunMoment } from '../run-moment.ts'

type Fold = HeadView['folds'][number]

/** Times with at least this share of the axis are folded. */
const minShare = 0.1

interface Gap {
  from: number
  to: number
}

/**
 * Returns the gaps of more than a tenth of the axis, in order of time. While the run continues, the
 * time since the last attempt is not folded.
 */
export function findFolds(moment: RunMoment): Fold[] {
  const { columns, now, start, isRunning, pass } = moment
  const minSeconds = minShare * (now - start)
  if (minSeconds <= 0) return []
  const { size, start: starts, end: ends, outcome } = columns.attempts
  const gaps: Gap[] = []
  let latest = start
  const add = (to: number): void => {
    if (to - latest > minSeconds) gaps.push({ from: latest, to })
  }
  for (let at = 0; at < size; at++) {
    if (outcome[at] === outcomeNumbers.repeated) continue
    add(starts[at] ?? 0)
    latest = Math.max(latest, Math.min(now, ends[at] ?? 0))
  }
  if (!isRunning && size > 0) add(now)
  // Starts are recorded late if they come from other machines, so an attempt may be inside a gap
  // that was found before it.
  for (let at = 0; at < size && gaps.length > 0; at++) {
    if (outcome[at] === outcomeNumbers.repeated) continue
    for (const gap of gaps) removeFrom(gap, starts[at] ?? 0, Math.min(now, ends[at] ?? 0))
  }
  const { pauses } = pass.states.bounds
  return gaps
    .filter(({ from, to }) => to - from > minSeconds)
    .map(({ from, to }) => {
      const isPause = pauses.some((pause) => pause.from < to && pause.to > from)
      const reason = isPause ? 'between two sessions of the run' : 'nothing ran'
      return { from, to, reason }
    })
}

/** Keeps the longer part of the gap if something ran in it. */
function removeFrom(gap: Gap, start: number, end: number): void {
  if (start >= gap.to || end <= gap.from) return
  if (start - gap.from > gap.to - end) gap.to = Math.max(gap.from, start)
  else gap.from = Math.min(gap.to, end)
}
