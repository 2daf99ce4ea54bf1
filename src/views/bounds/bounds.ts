/**
 * Bounds: the factors that limited the speed of the run. Shows how the slots were used, the
 * critical path, and tasks that took much longer than other tasks with the same name. Uses 32 bytes
 * per task, or 36 with priorities.
 */

import type { Panel } from '../panel.ts'
import { activeTime, type BoundsQuery, type BoundsState, createBounds } from './bounds-state.ts'
import { type Pause, updateBounds } from './bounds-state.ts'
import {
  collectRuns,
  type CriticalPath,
  findCriticalPath,
  findStragglers,
  measurePath,
} from './critical-path.ts'
import type { PathParts, Straggler } from './critical-path.ts'
import { measureSlots, type SlotsView } from './slot-run.ts'

export interface BoundsView extends SlotsView {
  /** The start of the time that the bounds cover, in wall-clock seconds. */
  readonly from: number
  readonly to: number
  /** The time from `from` to `to`, without the pauses. */
  readonly seconds: number
  /**
   * The times between files, when no session was running. Slots do not count as idle in these
   * times.
   */
  readonly pauses: readonly Pause[]
  readonly attended: readonly Pause[]
  readonly stopped: number
  readonly criticalPath: CriticalPath
  /** At most ten stragglers, sorted by extra seconds in descending order. */
  readonly stragglers: readonly Straggler[]
  readonly pathParts: PathParts
}

export const bounds: Panel<BoundsState, BoundsQuery, BoundsView> = {
  create: createBounds,
  take: updateBounds,

  show(state, query) {
    const { firstTime } = state
    const lastTime = Math.max(state.lastTime, query.now ?? -Infinity)
    const [from, to] = state.lastTime < firstTime ? [0, 0] : [firstTime, lastTime]
    const start = activeTime(state.pauses, from)
    const end = activeTime(state.pauses, to)
    const seconds = end - start
    const slots = measureSlots(state, query, { from: start, to: end })
    const runs = collectRuns(state, query, to)
    const criticalPath = findCriticalPath(state, query, runs, seconds)
    const stragglers = findStragglers(state, query, criticalPath, seconds)
    return {
      from,
      to,
      seconds,
      pauses: state.pauses,
      attended: state.attended,
      stopped: state.stopped,
      ...slots,
      criticalPath,
      stragglers,
      pathParts: measurePath(query, criticalPath),
    }
  },
}
