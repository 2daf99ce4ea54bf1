/** The gaps between two attempts of a task, which are not part of the task's running time. */

import { valueAt } from '../columns.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { readStageTimes } from './task-times.ts'

export interface AttemptGap {
  readonly task: number
  readonly from: number
  readonly delay: number
  /**
   * The start of the next attempt, or else the end of the task; `null` if the gap is still open.
   */
  readonly to: number | null
  /** The number of the next attempt's segment in `lanes`; -1 if no attempt followed. */
  readonly next: number
}

type OpenGap = Pick<AttemptGap, 'from' | 'delay'> & { readonly isCanceled: boolean }

const { retried, lost, canceled } = outcomeNumbers

/** Calls `visit` for each gap, in the order in which the next attempts started. */
export function forEachGap(
  { times }: BoundsState,
  { counts, lanes }: Pick<BoundsQuery, 'counts' | 'lanes'>,
  visit: (gap: AttemptGap) => void,
): void {
  const openGaps = new Map<number, OpenGap>()
  for (let segment = 0; segment < lanes.size; segment++) {
    const outcome = valueAt(lanes.outcome, segment)
    // A canceled task may run again if the run is resumed.
    const isCanceled = outcome === canceled && lanes.isResumed
    const isFollowed = outcome === retried || outcome === lost || isCanceled
    if (!isFollowed && openGaps.size === 0) continue
    const task = valueAt(lanes.task, segment)
    const start = valueAt(lanes.start, segment)
    // Skips an attempt of an earlier session, which ended before the task was created again.
    if (start < valueAt(times.created, task)) continue
    const gap = openGaps.get(task)
    if (gap !== undefined) visit({ ...gap, task, to: start, next: segment })
    openGaps.delete(task)
    if (!isFollowed) continue
    const from = start + valueAt(lanes.seconds, segment)
    openGaps.set(task, { from, delay: valueAt(lanes.retryDelay, segment), isCanceled })
  }
  for (const [task, gap] of openGaps) {
    if (gap.isCanceled || isInterrupted(counts, task)) continue
    const { ended } = readStageTimes(times, task, stagesOf(counts, task))
    visit({ ...gap, task, to: ended, next: -1 })
  }
}
