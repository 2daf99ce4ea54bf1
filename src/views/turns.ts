/** Finds the attempts of other tasks that started while a task waited in its queue. */

import type { RunPass } from './all-panels.ts'
import { oneCore, type SlotRequest } from './bounds/slots.ts'
import type { StageTimes } from './bounds/task-times.ts'
import { valueAt } from './columns.ts'
import { uidOf } from './task-index.ts'

/** The resources that one task holds, on one or several nodes. */
export interface HeldByTask {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
}

export interface EarlierStarts {
  /** The number of attempts of other tasks that started earlier. */
  readonly count: number
  /** The number of those attempts that requested more resources than this task. */
  readonly larger: number
  /** The last of these larger attempts. It delayed the tasks behind it in the queue. */
  readonly lastLarger: ({ readonly uid: string } & HeldByTask) | null
  /** The resources that the task requested; `null` if it requested only one core. */
  readonly asked: HeldByTask | null
}

/**
 * Finds the attempts that started while the task waited. Backends keep the queue order, so a task
 * that fits into no free slot delays the tasks behind it.
 */
export function earlierStarts(
  pass: RunPass,
  task: number,
  { queued, submitted, started, ended }: StageTimes,
): EarlierStarts {
  const { counts, states } = pass
  const { bounds, lanes } = states
  const [from, until] = [queued ?? submitted ?? Infinity, started ?? ended ?? -Infinity]
  const requestOf = (one: number): SlotRequest | undefined =>
    bounds.requests[valueAt(bounds.requestOfTask, one)]
  const ownRequest = requestOf(task)
  const ownAmounts = toHeldAmounts(ownRequest)
  const isLarger = bounds.requests.map((request) => exceedsAny(toHeldAmounts(request), ownAmounts))
  let [count, larger, last] = [0, 0, -1]
  for (let segment = 0; segment < lanes.size; segment++) {
    const start = valueAt(lanes.start, segment)
    const other = valueAt(lanes.task, segment)
    if (start < from || start >= until || other === task) continue
    if (requestOf(other)?.backend !== ownRequest?.backend) continue
    count++
    if (isLarger[valueAt(bounds.requestOfTask, other)] !== true) continue
    larger++
    if (last === -1 || start >= valueAt(lanes.start, last)) last = segment
  }
  const lastTask = valueAt(lanes.task, last)
  const amounts = toHeldAmounts(requestOf(lastTask))
  return {
    count,
    larger,
    lastLarger: last === -1 ? null : { uid: uidOf(counts.index, lastTask), ...amounts },
    asked: exceedsAny(ownAmounts, toHeldAmounts(undefined)) ? ownAmounts : null,
  }
}

function toHeldAmounts(request: SlotRequest | undefined): HeldByTask {
  const { cores, gpus, memoryMb, ranks } = request ?? oneCore
  return { cores: cores * ranks, gpus: gpus * ranks, memoryMb: memoryMb * ranks }
}

const exceedsAny = (one: HeldByTask, other: HeldByTask): boolean =>
  one.cores > other.cores || one.gpus > other.gpus || one.memoryMb > other.memoryMb
