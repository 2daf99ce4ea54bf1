/**
 * Bounds: what bounded the run. What the slots did, the critical path, and the tasks that took much
 * longer than others of their name. 32 bytes a task, 36 where tasks have priorities.
 */

import type { Panel } from '../panel.ts'
import { findAttemptGaps } from './attempt-gaps.ts'
import { activeTime, type BoundsQuery, type BoundsState, createBounds } from './bounds-state.ts'
import { type Pause, takeBounds } from './bounds-state.ts'
import { type CriticalPath, findCriticalPath, findStragglers } from './critical-path.ts'
import type { Straggler } from './critical-path.ts'
import type { SlotSeconds } from './slots.ts'
import { type BackendUse, slotSecondsOf } from './slot-run.ts'
import type { UnsizedUse } from './unsized-use.ts'

export interface BoundsView {
  /** Wall-clock seconds. */
  readonly from: number
  readonly to: number
  /** From one to the other, without the pauses. */
  readonly seconds: number
  /** Between two files of the run nobody was there: it belongs to no slot. */
  readonly pauses: readonly Pause[]
  /** Between two files nobody was there, but agents of a cluster went on. */
  readonly attended: readonly Pause[]
  /** Whether the run began before `from`: its oldest attempts are known by coarse lanes only. */
  readonly isPartial: boolean
  /** Tasks that were canceled when the run was stopped. */
  readonly stopped: number
  /** Of all nodes, also while they are away. Without told nodes: the workers. */
  readonly slots: number
  /** Less than `slots` where nodes, or a resumed run, had other sizes for a part of the time. */
  readonly fewestSlots: number
  /** Of as many slots as there were each time, by what they did. */
  readonly slotSeconds: SlotSeconds
  readonly backends: readonly BackendUse[]
  /** Those that no slots are known of. */
  readonly unsized: readonly UnsizedUse[]
  /** Of attempts that failed, were retried or lost; in seconds of slots. */
  readonly failedSeconds: number
  readonly criticalPath: CriticalPath
  /** At most ten, the worst first. */
  readonly stragglers: readonly Straggler[]
}

export const bounds: Panel<BoundsState, BoundsQuery, BoundsView> = {
  create: createBounds,
  take: takeBounds,

  show(state, query) {
    const { firstTime } = state
    const lastTime = Math.max(state.lastTime, query.now ?? -Infinity)
    const { dropped, droppedUntil } = query.lanes
    const isPartial = dropped > 0
    const first = isPartial ? Math.max(firstTime, droppedUntil) : firstTime
    const [from, to] = state.lastTime < firstTime ? [0, 0] : [first, lastTime]
    const [start, end] = [from, to].map((time) => activeTime(state.pauses, time)) as [
      number,
      number,
    ]
    const gaps = findAttemptGaps(state, query, to)
    const stragglers = findStragglers(state, query)
    const pathRange = { from: start, to, seconds: end - start, gaps, stragglers }
    return {
      from,
      to,
      seconds: end - start,
      pauses: state.pauses.filter((pause) => pause.to > from),
      attended: state.attended.filter((pause) => pause.to > from),
      isPartial,
      stopped: state.stopped,
      ...slotSecondsOf(state, query, { from: start, to: end }),
      criticalPath: findCriticalPath(state, query, pathRange),
      stragglers,
    }
  },
}
