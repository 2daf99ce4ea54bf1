/** The running time of the tasks of each name, including unfinished tasks. Pure. */

import { valueAt } from '../columns.ts'
import { hasEnded } from '../lifecycle.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'
import type { BoundsQuery } from './bounds-state.ts'

export interface NameTimes {
  /** The sum over all attempts of all tasks with the name, including running attempts so far. */
  readonly ranSeconds: number
  /** Seconds of the longest running attempt; `null` if none is running. */
  readonly maxRunningSeconds: number | null
}

export const noTimes: NameTimes = { ranSeconds: 0, maxRunningSeconds: null }

type Mutable = { -readonly [Key in keyof NameTimes]: NameTimes[Key] }

/** Indexed by the number of the name. `now` is the assumed end of running attempts. */
export function timesByName(
  { counts, names, lanes }: Pick<BoundsQuery, 'counts' | 'names' | 'lanes'>,
  now: number,
): readonly NameTimes[] {
  const times = Array.from({ length: names.names.size }, (): Mutable => ({ ...noTimes }))
  const timesOf = (task: number): Mutable =>
    times[valueAt(names.nameOfTask, task)] ?? { ...noTimes }
  for (let task = 0; task < names.tasks; task++) {
    // Attempts of ended tasks may have been dropped, because there were too many.
    if (!hasEnded(stagesOf(counts, task))) continue
    const seconds = valueAt(names.durations, task) || valueAt(names.canceledAfter, task)
    timesOf(task).ranSeconds += seconds
  }
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    if (hasEnded(stagesOf(counts, task))) continue
    const own = timesOf(task)
    if (valueAt(lanes.outcome, segment) !== outcomeNumbers.running) {
      own.ranSeconds += valueAt(lanes.seconds, segment)
      continue
    }
    const seconds = Math.max(0, now - valueAt(lanes.start, segment))
    own.ranSeconds += seconds
    if (isInterrupted(counts, task)) continue
    own.maxRunningSeconds = Math.max(own.maxRunningSeconds ?? 0, seconds)
  }
  return times
}
