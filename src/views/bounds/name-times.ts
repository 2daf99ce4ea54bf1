/** The running time of the tasks of each name, including tasks that have not finished. Pure. */

import { toArray, valueAt } from '../columns.ts'
import { hasEnded } from '../lifecycle.ts'
import { listStages } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'
import type { BoundsQuery } from './bounds-state.ts'

export interface NameSeconds {
  /** The seconds of all attempts of tasks with the name, including running attempts so far. */
  readonly ranSeconds: number
  readonly maxRunningSeconds: number | null
}

export const noSeconds: NameSeconds = { ranSeconds: 0, maxRunningSeconds: null }

type Mutable = { -readonly [Key in keyof NameSeconds]: NameSeconds[Key] }

/** Returns the times by the number of the name. `now` is the assumed end of running attempts. */
export function sumSecondsByName(
  { counts, names, lanes }: Pick<BoundsQuery, 'counts' | 'names' | 'lanes'>,
  now: number,
): readonly NameSeconds[] {
  const times = Array.from({ length: names.names.size }, (): Mutable => ({ ...noSeconds }))
  const { passed, isLeft } = listStages(counts)
  const nameOf = toArray(names.nameOfTask, names.tasks)
  const timesOf = (task: number): Mutable => times[nameOf[task] ?? 0] ?? { ...noSeconds }
  const durations = toArray(names.durations, names.tasks)
  for (let task = 0; task < names.tasks; task++) {
    // The duration in the terminal event is exact, even if no session was running for some time.
    if (!hasEnded(passed[task] ?? 0)) continue
    timesOf(task).ranSeconds += (durations[task] ?? 0) || valueAt(names.canceledAfter, task)
  }
  const taskOf = toArray(lanes.task, lanes.size)
  for (let segment = 0; segment < lanes.size; segment++) {
    const task = taskOf[segment] ?? 0
    if (hasEnded(passed[task] ?? 0)) continue
    const own = timesOf(task)
    if (valueAt(lanes.outcome, segment) !== outcomeNumbers.running) {
      own.ranSeconds += valueAt(lanes.seconds, segment)
      continue
    }
    const seconds = Math.max(0, now - valueAt(lanes.start, segment))
    own.ranSeconds += seconds
    if (isLeft[task] === 1) continue
    own.maxRunningSeconds = Math.max(own.maxRunningSeconds ?? 0, seconds)
  }
  return times
}
