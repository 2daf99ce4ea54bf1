/**
 * The ten instruments as data, and their current values. `otel/otel-metrics.ts` exports them to
 * OpenTelemetry.
 */

import type { Distributions } from '../../events/measurement.ts'
import { stages, type TaskTotals } from '../../views/lifecycle.ts'
import type { NodeUsage, ResourcesState } from '../../views/resources.ts'
import type { TaskRecord } from './task-record.ts'

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

/** An instrument with one series per node: its latest value. */
export interface NodeInstrument extends Described {
  readonly kind: 'updowncounter'
  readonly perNode: (node: NodeUsage) => number | null
}

const passed =
  (stage: number) =>
  (record: TaskRecord): number | null =>
    (record.passed & stage) === 0 ? null : 1

export const taskInstruments: readonly TaskInstrument[] = [
  {
    name: 'tasks_submitted',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks submitted to the session',
    total: (totals) => totals.submitted,
    perTask: passed(stages.submitted),
  },
  {
    name: 'tasks_started',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that transitioned to RUNNING',
    total: (totals) => totals.started,
    perTask: passed(stages.started),
  },
  {
    name: 'tasks_completed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached DONE',
    total: (totals) => totals.completed,
    perTask: passed(stages.completed),
  },
  {
    name: 'tasks_failed',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached FAILED',
    total: (totals) => totals.failed,
    perTask: passed(stages.failed),
  },
  {
    name: 'tasks_canceled',
    kind: 'counter',
    unit: 'tasks',
    description: 'tasks that reached CANCELED',
    total: (totals) => totals.canceled,
    perTask: passed(stages.canceled),
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

export const nodeInstruments: readonly NodeInstrument[] = [
  {
    name: 'node_cpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current CPU utilization per node',
    perNode: (node) => node.cpu.last,
  },
  {
    name: 'node_memory_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current memory utilization per node',
    perNode: (node) => node.memory.last,
  },
  {
    name: 'node_gpu_utilization',
    kind: 'updowncounter',
    unit: '%',
    description: 'current GPU utilization per node',
    perNode: (node) => node.gpu.last,
  },
]

/**
 * Each instrument's name with its sum over all labels, zeros included; for gauges the value of the
 * node that was polled last. Measurements of backends appear once there is one.
 */
export function readMetrics(
  totals: TaskTotals,
  { latest }: ResourcesState,
  measured: Distributions,
): Record<string, number> {
  const values: Record<string, number> = {}
  for (const { name, total } of taskInstruments) values[name] = total(totals)
  values[`${durationInstrument.name}_count`] = totals.durationCount
  values[`${durationInstrument.name}_sum`] = totals.durationSum
  for (const { name, perNode } of nodeInstruments) {
    values[name] = latest === null ? 0 : (perNode(latest) ?? 0)
  }
  for (const { instrument, count, sum } of measured.all()) {
    values[`${instrument.name}_count`] = (values[`${instrument.name}_count`] ?? 0) + count
    values[`${instrument.name}_sum`] = (values[`${instrument.name}_sum`] ?? 0) + sum
  }
  return values
}
