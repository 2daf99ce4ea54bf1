/**
 * Summary: a run in a few numbers. It is computed from other views, which are filled by the live
 * counters of telemetry or by a pass over the file.
 */

import type { TaskTotals } from './lifecycle.ts'
import type { NodeSummary } from './panels/resources.ts'
import type { TelemetryCost } from './panels/run.ts'
import { type DurationStats, durationStats } from './stats.ts'

/** The result of `telemetry.summary()`: the run so far. */
export interface TelemetrySummary {
  readonly session_id: string
  readonly duration_seconds: number
  readonly tasks: {
    readonly submitted: number
    readonly completed: number
    readonly failed: number
    readonly canceled: number
    readonly running: number
  }
  /**
   * Seconds from the first start until the task ended, for tasks that were RUNNING and reached DONE
   * or FAILED. As in the events, waits between attempts are included.
   */
  readonly duration: DurationStats
  /**
   * The number of results that were dropped because their task had already ended, for example by
   * cancellation.
   */
  readonly late_results: number
  /** One entry per backend and node that was polled. */
  readonly resources: readonly NodeSummary[]
  /** The cost of telemetry itself. */
  readonly telemetry: TelemetryCost
}

interface SummaryParts {
  readonly sessionId: string
  readonly durationSeconds: number
  readonly totals: Readonly<TaskTotals>
  /** The durations of the tasks counted in `totals.durationCount`. */
  readonly durations: readonly number[] | Float64Array
  readonly lateResults: number
  readonly nodes: readonly NodeSummary[]
  readonly telemetry: TelemetryCost
}

export function summarize(parts: SummaryParts): TelemetrySummary {
  const { submitted, completed, failed, canceled, running } = parts.totals
  return {
    session_id: parts.sessionId,
    duration_seconds: parts.durationSeconds,
    tasks: { submitted, completed, failed, canceled, running },
    duration: durationStats(parts.durations),
    late_results: parts.lateResults,
    resources: parts.nodes,
    telemetry: parts.telemetry,
  }
}
