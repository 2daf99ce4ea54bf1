/**
 * The instruments as data, and their current values. `otel/otel-metrics.ts` exports them to
 * OpenTelemetry, `prometheus-endpoint.ts` to Prometheus.
 */

import type { Distributions, HistogramInstrument } from '../../events/measurement.ts'
import { hasDuration, stages, type TaskTotals } from '../../views/lifecycle.ts'
import type { NodeUsage, ResourcesState } from '../../views/panels/resources.ts'
import type { TaskRow } from './task-row.ts'
import type { TaskTable } from './task-table.ts'

export interface InstrumentInfo {
  readonly name: string
  readonly unit: string
  readonly description: string
}

/** An instrument with one series per task. */
export interface TaskInstrument extends InstrumentInfo {
  readonly kind: 'counter' | 'updowncounter'
  readonly total: (totals: TaskTotals) => number
  /** The value of a task; `null` if the task has no series in this instrument. */
  readonly perTask: (record: TaskRow) => number | null
}

/** A histogram with at most one value per task. */
export interface TaskHistogram extends HistogramInstrument {
  readonly total: (tasks: TaskTable) => { readonly count: number; readonly sum: number }
  /** The value of a task in seconds; `null` if the task has none. */
  readonly perTask: (record: TaskRow) => number | null
}

/** An instrument with one series per node. Its value is the latest one of the node. */
export interface NodeInstrument extends InstrumentInfo {
  readonly kind: 'updowncounter'
  readonly perNode: (node: NodeUsage) => number | null
}

const hasPassed =
  (stage: number) =>
  (record: TaskRow): number | null =>
    (record.passed & stage) === 0 ? null : 1

export const taskInstruments: readonly TaskInstrument[] = [
  {
    name: 'tasks_submitted',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks submitted to the session',
    total: (totals) => totals.submitted,
    perTask: hasPassed(stages.submitted),
  },
  {
    name: 'tasks_started',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that transitioned to RUNNING',
    total: (totals) => totals.started,
    perTask: hasPassed(stages.started),
  },
  {
    name: 'tasks_completed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached DONE',
    total: (totals) => totals.completed,
    perTask: hasPassed(stages.completed),
  },
  {
    name: 'tasks_failed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached FAILED',
    total: (totals) => totals.failed,
    perTask: hasPassed(stages.failed),
  },
  {
    name: 'tasks_canceled',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached CANCELED',
    total: (totals) => totals.canceled,
    perTask: hasPassed(stages.canceled),
  },
  {
    name: 'tasks_running',
    kind: 'updowncounter',
    unit: 'tasks',
    description: 'tasks currently RUNNING',
    total: (totals) => totals.running,
    perTask: (record) => (record.wasRunning ? Number(!record.hasEnded) : null),
  },
  {
    name: 'tasks_queued',
    kind: 'updowncounter',
    unit: 'tasks',
    description: "tasks in a backend's queue that have not begun",
    total: (totals) => totals.queued,
    perTask: (record) => (record.wasQueued ? Number(!record.wasRunning && !record.hasEnded) : null),
  },
]

const boundaries = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600]

export const taskHistograms: readonly TaskHistogram[] = [
  {
    name: 'task_duration_seconds',
    unit: 'seconds',
    description: 'execution duration, RUNNING to DONE or FAILED',
    boundaries,
    total: ({ totals }) => ({ count: totals.durationCount, sum: totals.durationSum }),
    perTask: (record) => (hasDuration(record.passed) ? record.durationSeconds : null),
  },
  {
    name: 'task_queue_seconds',
    unit: 'seconds',
    description: "time in the backend's queue, from TaskQueued to TaskStarted",
    boundaries,
    total: ({ queueTotals }) => queueTotals,
    perTask: (record) => record.queueSeconds,
  },
]

export const nodeInstruments: readonly NodeInstrument[] = [
  {
    name: 'node_cpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current CPU utilization per node',
    perNode: (node) => (node.hasLeft ? null : node.cpu.last),
  },
  {
    name: 'node_memory_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current memory utilization per node',
    perNode: (node) => (node.hasLeft ? null : node.memory.last),
  },
  {
    name: 'node_gpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current GPU utilization per node',
    perNode: (node) => (node.hasLeft ? null : node.gpu.last),
  },
]

export interface MetricSource {
  readonly sessionId: string
  readonly tasks: TaskTable
  readonly nodes: ResourcesState
  readonly measured: Distributions
}

/**
 * Returns the value of each instrument by name, summed over all labels and including zeros. An
 * instrument of nodes has the value of the node that was polled last, and is absent if there is no
 * such value. A measurement of a backend is absent before its first value.
 */
export function readMetrics({ tasks, nodes, measured }: MetricSource): Record<string, number> {
  const { latest } = nodes
  const values: Record<string, number> = {}
  for (const { name, total } of taskInstruments) values[name] = total(tasks.totals)
  for (const { name, total } of taskHistograms) {
    const { count, sum } = total(tasks)
    values[`${name}_count`] = count
    values[`${name}_sum`] = sum
  }
  for (const { name, perNode } of nodeInstruments) {
    const level = latest === null ? null : perNode(latest)
    if (level !== null) values[name] = level
  }
  for (const { instrument, count, sum } of measured.list()) {
    values[`${instrument.name}_count`] = (values[`${instrument.name}_count`] ?? 0) + count
    values[`${instrument.name}_sum`] = (values[`${instrument.name}_sum`] ?? 0) + sum
  }
  return values
}
