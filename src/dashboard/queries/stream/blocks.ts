/** Single attempts as blocks with their phases. */

import { readStageTimes } from '../../../views/bounds/task-times.ts'
import { stagesOf } from '../../../views/panels/counts.ts'
import type { SegmentView } from '../../../views/panels/lanes.ts'
import type { StreamBlock } from '../../protocol.ts'
import { nameOfTask, rounded, shownUid } from '../shown-texts.ts'
import type { RunMoment } from '../run-moment.ts'

export interface PlacedSegment {
  readonly segment: SegmentView
  /** The row of the segment; -1 if it is not shown. */
  readonly row: number
}

type Phase = StreamBlock['phases'][number]

/** Returns the blocks of shown rows, in order of their start. */
export function toBlocks(moment: RunMoment, placed: readonly PlacedSegment[]): StreamBlock[] {
  const shown = placed
    .filter(({ row }) => row !== -1)
    .toSorted((a, b) => a.segment.start - b.segment.start)
  const nextStart = new Map<PlacedSegment, number>()
  const latest = new Map<number, PlacedSegment>()
  for (const one of shown) {
    const before = latest.get(one.row)
    if (before !== undefined) nextStart.set(before, one.segment.start)
    latest.set(one.row, one)
  }
  const nextAttempt = listNextAttempts(shown)
  const ends = new Map<number, number>()
  return shown.map((one) => {
    const { segment, row } = one
    const freeSince = ends.get(row) ?? -Infinity
    ends.set(row, segment.end)
    const { task, attempt, start, end } = segment
    return {
      row,
      task: shownUid(moment, task),
      name: nameOfTask(moment, task),
      attempt,
      start: rounded(start),
      end: rounded(end),
      outcome: outcomeOf(moment, segment),
      phases: phasesOf(moment, segment, {
        freeSince,
        nextStart: nextStart.get(one) ?? Infinity,
        nextAttempt: nextAttempt.get(one) ?? null,
      }),
    }
  })
}

function outcomeOf({ isRunning }: RunMoment, { outcome }: SegmentView): StreamBlock['outcome'] {
  if (outcome === 'running') return isRunning ? 'running' : 'interrupted'
  return outcome === 'repeated' ? 'other' : outcome
}

interface RoomInRow {
  /** The end of the previous attempt in the same row. */
  readonly freeSince: number
  /** The start of the next attempt in the same row. */
  readonly nextStart: number
  /** The start of the next attempt of the same task, if it is shown. */
  readonly nextAttempt: number | null
}

function listNextAttempts(shown: readonly PlacedSegment[]): Map<PlacedSegment, number> {
  const next = new Map<PlacedSegment, number>()
  const latest = new Map<number, PlacedSegment>()
  for (const one of shown) {
    const before = latest.get(one.segment.task)
    if (before !== undefined) next.set(before, one.segment.start)
    latest.set(one.segment.task, one)
  }
  return next
}

/**
 * The phases of an attempt in order of time: what its task waited for while the row was free, the
 * attempt itself, and the wait for the next attempt. Later attempts only have the last two.
 */
function phasesOf(
  { pass, now }: RunMoment,
  { task, attempt, start, end, outcome, retryDelay }: SegmentView,
  { freeSince, nextStart, nextAttempt }: RoomInRow,
): Phase[] {
  const { bounds } = pass.states
  const story = readStageTimes(bounds.times, task, stagesOf(pass.counts, task))
  const phases: Phase[] = []
  const add = (kind: Phase['kind'], from: number, to: number): void => {
    const [first, last] = [Math.max(from, freeSince), Math.min(to, nextStart)]
    if (last > first) phases.push({ kind, from: rounded(first), to: rounded(last) })
  }
  // A later session may have created the task again after this attempt.
  if (attempt === 1 && story.created <= start) {
    const ready = Math.min(start, story.ready ?? start)
    const queued = Math.min(start, Math.max(ready, story.queued ?? ready))
    add('values', story.created, ready)
    add('queued', ready, queued)
    add('starting', queued, start)
  }
  phases.push({ kind: 'running', from: rounded(start), to: rounded(end) })
  if (outcome === 'retried') {
    add('between', end, nextAttempt ?? Math.min(now, end + retryDelay))
  }
  return phases
}
