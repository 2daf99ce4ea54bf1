/** The time between two attempts of a task, which is not part of the task's running time. */

import { valueAt } from '../columns.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { type LanesState, outcomeNumbers } from '../panels/lanes.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { storyOf } from './task-times.ts'

/** Seconds of gaps, indexed by task number. */
export interface AttemptGaps {
  /** From one attempt to the next. */
  readonly all: Float32Array
  /** The part of `all` in which the retry delay (`delaySeconds`) had not passed yet. */
  readonly delays: Float32Array
}

interface Gap {
  readonly from: number
  readonly delay: number
  /** Whether another attempt is certain to follow; a canceled attempt may be the last. */
  readonly isOpen: boolean
}

const { retried, lost, canceled } = outcomeNumbers

/** Whether another attempt may follow, as after a cancellation if the run is resumed. */
export const mayBeRetried = (outcome: number, { isResumed }: LanesState): boolean =>
  outcome === retried || outcome === lost || (isResumed && outcome === canceled)

export const gapOf = (gaps: AttemptGaps | null, task: number): number => gaps?.all[task] ?? 0
export const delayOf = (gaps: AttemptGaps | null, task: number): number => gaps?.delays[task] ?? 0

/** Returns `null` when no task has several attempts. Gaps that are still open end at `to`. */
export function findAttemptGaps(
  { times }: BoundsState,
  { counts, lanes }: BoundsQuery,
  to: number,
): AttemptGaps | null {
  let gaps: AttemptGaps | null = null
  /** The open gap of each task that is between two attempts. */
  const open = new Map<number, Gap>()
  const add = (task: number, { from, delay }: Gap, until: number): void => {
    const tasks = counts.index.names.size
    gaps ??= { all: new Float32Array(tasks), delays: new Float32Array(tasks) }
    const seconds = Math.max(0, until - from)
    gaps.all[task] = gapOf(gaps, task) + seconds
    gaps.delays[task] = delayOf(gaps, task) + Math.min(seconds, delay)
  }
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const outcome = valueAt(lanes.outcome, segment)
    const isFollowed = mayBeRetried(outcome, lanes)
    if (!isFollowed && open.size === 0) continue
    const task = valueAt(lanes.task, segment)
    const start = valueAt(lanes.start, segment)
    // The attempt belongs to an earlier session, before the task was created again.
    if (start < valueAt(times.created, task)) continue
    const gap = open.get(task)
    if (gap !== undefined) {
      add(task, gap, start)
      open.delete(task)
    }
    if (!isFollowed) continue
    const from = start + valueAt(lanes.seconds, segment)
    const delay = valueAt(lanes.retryDelay, segment)
    open.set(task, { from, delay, isOpen: outcome !== canceled })
  }
  for (const [task, gap] of open) {
    if (!gap.isOpen || isInterrupted(counts, task)) continue
    add(task, gap, storyOf(times, task, stagesOf(counts, task)).ended ?? to)
  }
  return gaps
}
