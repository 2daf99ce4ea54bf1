/**
 * The ten instruments as data, and their current values. How OpenTelemetry sees them is in `otel-
 * metrics.ts`.
 */

import type { Distributions } from '../../events/measurement.ts'
import type { NodeGauge, NodeGauges } from './node-gauges.ts'
import type { TaskRecord } from './task-record.ts'
import type { TaskTable, TaskTotals } from './task-table.ts'

interface Described {
  readonly name: string
  readonly unit: string
  readonly description: string
}

/** An instrument with one series per task. */
export interface TaskInstrument extends Described {
  readonly kind: 'counter' | 'updowncounter'
  readonly total: (totals: TaskTotals) => number
  /** `null` when the task has no series in this instrument. */
  readonly perTask: (record: TaskRecord) => number | null
}

/** An instrument with one series per node, tracking the last seen value. */
export interface NodeInstrument extends Described {
  readonly kind: 'updowncounter'
  readonly perNode: (gauge: NodeGauge) => number | null
}

const reached = (isReached: boolean): number | null => (isReached ? 1 : null)

export const taskInstruments: readonly TaskInstrument[] = [
  {
    name: 'tasks_submitted',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks submitted to the session',
    total: (totals) => totals.submitted,
    perTask: (record) => reached(record.wasSubmitted),
  },
  {
    name: 'tasks_started',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that transitioned to RUNNING',
    total: (totals) => totals.started,
    perTask: (record) => reached(record.wasRunning),
  },
  {
    name: 'tasks_completed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached DONE',
    total: (totals) => totals.completed,
    perTask: (record) => reached(record.status === 'completed'),
  },
  {
    name: 'tasks_failed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached FAILED',
    total: (totals) => totals.failed,
    perTask: (record) => reached(record.status === 'failed'),
  },
  {
    name: 'tasks_canceled',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached CANCELED',
    total: (totals) => totals.canceled,
    perTask: (record) => reached(record.status === 'canceled'),
  },
  {
    name: 'tasks_running',
    kind: 'updowncounter',
    unit: 'tasks',
    description: 'tasks currently RUNNING',
    total: (totals) => totals.running,
    perTask: (record) => (record.wasRunning ? Number(!record.hasEnded) : null),
  },
]

export const durationInstrument: Described = {
  name: 'task_duration_seconds',
  unit: 'seconds',
  description: 'execution duration, RUNNING to DONE or FAILED',
}

/** Whether the task counts in the duration histogram. */
export const hasDuration = (record: TaskRecord): boolean =>
  record.wasRunning && (record.status === 'completed' || record.status === 'failed')

export const nodeInstruments: readonly NodeInstrument[] = [
  {
    name: 'node_cpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current CPU utilization per node',
    perNode: (gauge) => gauge.cpu.last,
  },
  {
    name: 'node_memory_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current memory utilization per node',
    perNode: (gauge) => gauge.memory.last,
  },
  {
    name: 'node_gpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current GPU utilization per node',
    perNode: (gauge) => gauge.gpu.last,
  },
]

/**
 * Each instrument's name with its sum over all labels; gauges: of the node last seen; zeros
 * included. What backends measure is there once it was measured.
 */
export function readMetrics(
  tasks: TaskTable,
  nodes: NodeGauges,
  measured: Distributions,
): Record<string, number> {
  const values: Record<string, number> = {}
  for (const { name, total } of taskInstruments) values[name] = total(tasks.totals)
  values[`${durationInstrument.name}_count`] = tasks.totals.durationCount
  values[`${durationInstrument.name}_sum`] = tasks.totals.durationSum
  for (const { name, perNode } of nodeInstruments) {
    values[name] = nodes.latest === undefined ? 0 : (perNode(nodes.latest) ?? 0)
  }
  for (const { instrument, count, sum } of measured.all()) {
    values[`${instrument.name}_count`] = (values[`${instrument.name}_count`] ?? 0) + count
    values[`${instrument.name}_sum`] = (values[`${instrument.name}_sum`] ?? 0) + sum
  }
  return values
}
