/** What began in the queue of a backend while a task waited there for its turn. */

import type { RunPass } from './all-panels.ts'
import { oneCore, type SlotRequest } from './bounds/slots.ts'
import type { TaskStory } from './bounds/task-times.ts'
import { valueAt } from './columns.ts'
import { uidOf } from './task-index.ts'

/** What one task holds of a node, or of several. */
export interface HeldByTask {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
}

export interface BegunBefore {
  /** Attempts of other tasks. */
  readonly count: number
  /** Of those, how many asked for more than it, and the last one: those behind it had to wait. */
  readonly larger: number
  readonly lastLarger: ({ readonly uid: string } & HeldByTask) | null
}

/** Backends keep their order, so what fits no free slot holds up what is behind it. */
export function begunBefore(
  { counts, states: { bounds, lanes } }: RunPass,
  task: number,
  { queued, submitted, started, ended }: TaskStory,
): BegunBefore {
  const [from, until] = [queued ?? submitted ?? Infinity, started ?? ended ?? -Infinity]
  const requestOf = (one: number): SlotRequest | undefined =>
    bounds.requests[valueAt(bounds.requestOfTask, one)]
  const own = requestOf(task)
  const held = heldBy(own)
  const isLarger = bounds.requests.map((request) => isMore(heldBy(request), held))
  let [count, larger, last, lastStart] = [0, 0, -1, -Infinity]
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const start = valueAt(lanes.start, segment)
    if (start < from || start >= until) continue
    const other = valueAt(lanes.task, segment)
    if (other === task || requestOf(other)?.backend !== own?.backend) continue
    count++
    if (isLarger[valueAt(bounds.requestOfTask, other)] !== true) continue
    larger++
    if (start >= lastStart) [last, lastStart] = [other, start]
  }
  const lastLarger =
    last === -1 ? null : { uid: uidOf(counts.index, last), ...heldBy(requestOf(last)) }
  return { count, larger, lastLarger }
}

function heldBy(request: SlotRequest | undefined): HeldByTask {
  const { cores, gpus, memoryMb, ranks } = request ?? oneCore
  return { cores: cores * ranks, gpus: gpus * ranks, memoryMb: memoryMb * ranks }
}

const isMore = (one: HeldByTask, other: HeldByTask): boolean =>
  one.cores > other.cores || one.gpus > other.gpus || one.memoryMb > other.memoryMb
