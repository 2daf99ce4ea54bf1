/** Describes how a run ended in one sentence. Pure. */

import { countText, numberText, secondsText } from '../readable.ts'
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
  const losses = [
    ...(data.reused > 0 ? [`${countText(data.reused, 'result')} reused`] : []),
    ...(run.workersLost > 0 ? [`${countText(run.workersLost, 'worker')} lost`] : []),
    ...(health.nodesLost > 0 ? [`${countText(health.nodesLost, 'node')} lost`] : []),
    ...(run.retries > 0 ? [countText(run.retries, 'further attempt')] : []),
  ]
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
  const parts = [
    ...(failed > 0 ? [`${numberText(failed)} failed`] : []),
    ...(canceled > 0
      ? [`${numberText(canceled)} ${canceled === 1 ? 'was' : 'were'} canceled`]
      : []),
    ...(open > 0 ? [`${numberText(open)} ${open === 1 ? 'has' : 'have'} no end`] : []),
  ]
  const sentence = `${done} of ${all} succeeded in ${seconds}; ${parts.join(', ')}${beside}.`
  return { severity: failed > 0 ? 'bad' : 'warning', sentence }
}
