/**
 * Bounds: what bounded the run. What the slots did, the critical path, and the tasks that took much
 * longer than others of their name. 29 bytes a task.
 */

import type { Panel } from '../panel.ts'
import { type BoundsQuery, type BoundsState, createBounds, takeBounds } from './bounds-state.ts'
import { type CriticalPath, findCriticalPath, findStragglers } from './critical-path.ts'
import type { Straggler } from './critical-path.ts'
import type { SlotSeconds } from './slot-classes.ts'
import { slotSecondsOf } from './slot-run.ts'

export interface BoundsView {
  /** Wall-clock seconds. */
  readonly from: number
  readonly to: number
  /** Whether the run began before `from`: its oldest attempts are known by coarse lanes only. */
  readonly isPartial: boolean
  /** Of all nodes that were ever there. Without told nodes: the workers. */
  readonly slots: number
  /** `slots * (to - from)`, by what they did. */
  readonly slotSeconds: SlotSeconds
  readonly criticalPath: CriticalPath
  /** At most ten, the worst first. */
  readonly stragglers: readonly Straggler[]
}

export const bounds: Panel<BoundsState, BoundsQuery, BoundsView> = {
  create: createBounds,
  take: takeBounds,

  show(state, query) {
    const { firstTime, lastTime } = state
    const { dropped, droppedUntil } = query.lanes
    const isPartial = dropped > 0
    const first = isPartial ? Math.max(firstTime, droppedUntil) : firstTime
    const [from, to] = lastTime < firstTime ? [0, 0] : [first, lastTime]
    return {
      from,
      to,
      isPartial,
      ...slotSecondsOf(state, query, { from, to }),
      criticalPath: findCriticalPath(state, query, { from, to }),
      stragglers: findStragglers(query.names),
    }
  },
}
