/**
 * The pace of each name, computed from the columns of a pass. Gives the same numbers as the panel
 * `pace`, also for an earlier time. Pure.
 */

import { valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import type { NamesState } from '../panels/names.ts'
import { type PaceView, recentSeconds } from '../panels/pace.ts'
import type { RunColumns } from './run-columns.ts'

/** Returns the paces by the number of the name. */
export function measurePaces(columns: RunColumns, names: NamesState, now: number): PaceView[] {
  const recentSince = Math.floor(now) - recentSeconds + 1
  const sums = Array.from({ length: names.names.size }, () => ({
    start: Infinity,
    end: 0,
    ended: 0,
    seconds: 0,
    oldest: now,
    recent: 0,
  }))
  for (let task = 0; task < columns.tasks; task++) {
    const passed = columns.passed[task] ?? 0
    const nameSum = sums[columns.name[task] ?? 0]
    if (nameSum === undefined || passed < stages.started) continue
    const hasBegun = hasStarted(passed)
    const start = columns.started[task] ?? Number.NaN
    if (hasBegun && start < nameSum.start) nameSum.start = start
    if (!hasEnded(passed)) {
      if (hasBegun && columns.isLeft[task] === 0 && start < nameSum.oldest) nameSum.oldest = start
      continue
    }
    const isDone = (passed & stages.completed) !== 0
    const hasRun = isDone ? valueAt(names.isReused, task) === 0 : hasBegun
    if ((passed & stages.canceled) !== 0 || !hasRun) continue
    const end = columns.ended[task] ?? 0
    nameSum.ended++
    nameSum.seconds += hasBegun ? Math.max(0, end - start) : 0
    nameSum.end = Math.max(nameSum.end, end)
    if (Math.floor(end) >= recentSince) nameSum.recent++
  }
  return sums.map(({ start, end, ended, seconds, oldest, recent }) => ({
    start: start === Infinity ? null : start,
    end,
    ended,
    overdue: ended === 0 ? 0 : Math.max(0, now - oldest - seconds / ended),
    recent,
    recentSince,
  }))
}

/** The pace of several names together. */
export const joinPaces = (paces: readonly PaceView[], recentSince: number): PaceView =>
  paces.reduce(
    (all, one) => ({
      start:
        all.start === null || one.start === null
          ? (all.start ?? one.start)
          : Math.min(all.start, one.start),
      end: Math.max(all.end, one.end),
      ended: all.ended + one.ended,
      overdue: Math.max(all.overdue, one.overdue),
      recent: all.recent + one.recent,
      recentSince,
    }),
    { start: null, end: 0, ended: 0, overdue: 0, recent: 0, recentSince },
  )
