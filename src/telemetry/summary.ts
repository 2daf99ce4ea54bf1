/** The run in a few numbers, computed when asked for. */

import { type DurationStats, durationStats } from '../views/stats.ts'
import { hasDuration } from './metrics/metrics.ts'
import type { Gauge, NodeGauges } from './metrics/node-gauges.ts'
import type { TaskTable } from './metrics/task-table.ts'

export interface UtilizationSummary {
  readonly last: number | null
  readonly mean: number | null
  readonly max: number | null
}

export interface NodeSummary {
  readonly backend: string
  readonly node_id: string
  readonly cpu_percent: UtilizationSummary
  readonly memory_percent: UtilizationSummary
  readonly gpu_percent: UtilizationSummary
}

/** What `telemetry.summary()` tells of the run so far. */
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
  /** Of tasks that were RUNNING and reached DONE or FAILED, in seconds. */
  readonly duration: DurationStats
  /** One entry per backend and node that was polled. */
  readonly resources: readonly NodeSummary[]
}

export function summarize(
  sessionId: string,
  durationSeconds: number,
  tasks: TaskTable,
  nodes: NodeGauges,
): TelemetrySummary {
  const { submitted, completed, failed, canceled, running } = tasks.totals
  const durations: number[] = []
  for (const record of tasks.records()) {
    if (hasDuration(record)) durations.push(record.durationSeconds)
  }
  return {
    session_id: sessionId,
    duration_seconds: durationSeconds,
    tasks: { submitted, completed, failed, canceled, running },
    duration: durationStats(durations),
    resources: [...nodes.all()].map((node) => ({
      backend: node.backend,
      node_id: node.nodeId,
      cpu_percent: toUtilization(node.cpu),
      memory_percent: toUtilization(node.memory),
      gpu_percent: toUtilization(node.gpu),
    })),
  }
}

const toUtilization = ({ last, mean, max }: Gauge): UtilizationSummary => ({ last, mean, max })
