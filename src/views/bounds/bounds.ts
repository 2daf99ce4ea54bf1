/**
 * Bounds: the factors that limited the speed of the run. Shows how the slots were used, the
 * critical path, and tasks that took much longer than others of their name. 32 bytes per task, or
 * 36 with priorities.
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
  /** From `from` to `to`, without the pauses. */
  readonly seconds: number
  /** Times between two files in which no session was running; slots do not count there. */
  readonly pauses: readonly Pause[]
  /** Times between two files in which agents of a cluster continued without a session. */
  readonly attended: readonly Pause[]
  /** Whether the run began before `from`, because details of its oldest attempts were dropped. */
  readonly isPartial: boolean
  /** The number of tasks that were canceled when the run was stopped. */
  readonly stopped: number
  /** The cores of all nodes, including nodes that are away, or else the number of workers. */
  readonly slots: number
  /** Smaller than `slots` if nodes changed their size during the run or between its sessions. */
  readonly fewestSlots: number
  /** Core-seconds by class, over the slots that existed at each moment. */
  readonly slotSeconds: SlotSeconds
  readonly backends: readonly BackendUse[]
  /** Backends whose number of slots is unknown. */
  readonly unsized: readonly UnsizedUse[]
  /** Slot-seconds of attempts that failed, were retried or lost. */
  readonly failedSeconds: number
  readonly criticalPath: CriticalPath
  /** At most ten stragglers, sorted by extra seconds in descending order. */
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
    const stragglers = findStragglers(state, query, end - start)
    const slots = slotSecondsOf(state, query, { from: start, to: end })
    const { backends } = slots
    const hasFailures = slots.failedSeconds > 0
    const pathRange = { to, seconds: end - start, hasFailures, gaps, stragglers, backends }
    return {
      from,
      to,
      seconds: end - start,
      pauses: state.pauses.filter((pause) => pause.to > from),
      attended: state.attended.filter((pause) => pause.to > from),
      isPartial,
      stopped: state.stopped,
      ...slots,
      criticalPath: findCriticalPath(state, query, pathRange),
      stragglers,
    }
  },
}
