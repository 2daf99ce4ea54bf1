/** Describes how a run ended and the cost of its telemetry, in one sentence each. Pure. */

import { countText, listCounts, numberText, secondsText } from '../readable.ts'
import type { TelemetryCost } from '../panels/run.ts'
import type { RunOverview } from './run-overview.ts'

export type Severity = 'good' | 'warning' | 'bad'

export interface ReportVerdict {
  readonly severity: Severity
  readonly sentence: string
}

/** The numbers that the sentence is about. */
export type RunNumbers = Pick<
  RunOverview,
  'counts' | 'run' | 'health' | 'state' | 'durationSeconds' | 'reused'
>

export function describeRun(data: RunNumbers): ReportVerdict {
  const { counts, run, health, state } = data
  const { tasks, completed, failed, canceled, open } = counts
  const seconds = secondsText(data.durationSeconds)
  if (counts.events === 0) {
    return {
      severity: 'bad',
      sentence: 'The record has no event: nothing is known about this run.',
    }
  }
  const losses = listCounts([
    [data.reused, 'result reused', 'results reused'],
    [run.workersLost, 'worker lost', 'workers lost'],
    [health.nodesLost, 'node lost', 'nodes lost'],
    [run.retries, 'further attempt', 'further attempts'],
  ])
  const beside = losses.length === 0 ? '' : ` (${losses.join(', ')})`
  const [done, all] = [numberText(completed), countText(tasks, 'task')]
  if (state === 'running' || run.endTime === null) {
    const isRunning = state === 'running'
    const start = isRunning ? 'The run is in progress' : 'The run has no end'
    const sentence =
      `${start}: after ${seconds}, ${done} of ${all} done, ${numberText(failed)} failed, ` +
      `${numberText(open)} open${beside}.`
    return { severity: !isRunning ? 'warning' : failed > 0 ? 'bad' : 'good', sentence }
  }
  if (tasks === 0)
    return { severity: 'warning', sentence: `The run had no task; it took ${seconds}.` }
  if (failed === 0 && canceled === 0 && open === 0) {
    const whole = tasks === 1 ? 'Its only task' : `All ${all}`
    return { severity: 'good', sentence: `${whole} succeeded in ${seconds}${beside}.` }
  }
  const parts = listCounts([
    [failed, 'failed'],
    [canceled, 'was canceled', 'were canceled'],
    [open, 'has no end', 'have no end'],
  ])
  const sentence = `${done} of ${all} succeeded in ${seconds}; ${parts.join(', ')}${beside}.`
  return { severity: failed > 0 ? 'bad' : 'warning', sentence }
}

export function describeCost(cost: TelemetryCost): string {
  const { main_cpu_seconds: main, thread_cpu_seconds: thread } = cost
  const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`
  const spilled = cost.spill_bytes === 0 ? '' : ` and ${megabytes(cost.spill_bytes)} of spans`
  return (
    `${secondsText(main)} of CPU time in the main thread and ${secondsText(thread)} in its own; ` +
    `it waited for ${countText(cost.in_place_writes, 'write')}, ` +
    `and wrote ${megabytes(cost.bytes_written)} of lines${spilled}`
  )
}
