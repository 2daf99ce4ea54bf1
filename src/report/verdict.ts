/** How a run ended, in one sentence. Pure. */

import { countText, secondsText } from '../views/readable.ts'
import type { ReportData } from './report-data.ts'

export type Mood = 'good' | 'warning' | 'bad'

export interface ReportVerdict {
  readonly mood: Mood
  readonly sentence: string
}

/** Of a run that has not told it: from its first to its last event. */
export function durationOf({ run, bounds }: ReportData): number {
  const attended = bounds.attended.reduce((sum, { from, to }) => sum + to - from, 0)
  if (run.durationSeconds !== null) return run.durationSeconds + attended
  if (run.startTime === null) return 0
  return run.earlierSeconds + Math.max(0, run.lastTime - run.sessionStart)
}

export function describeRun(data: ReportData): ReportVerdict {
  const { counts, run, health, facts } = data
  const { tasks, completed, failed, canceled, open } = counts
  const seconds = secondsText(durationOf(data))
  if (counts.events === 0) {
    return { mood: 'bad', sentence: 'The record has no event: nothing is known about this run.' }
  }
  const losses = [
    ...(run.workersLost > 0 ? [`${countText(run.workersLost, 'worker')} lost`] : []),
    ...(health.nodesLost > 0 ? [`${countText(health.nodesLost, 'node')} lost`] : []),
    ...(run.retries > 0 ? [countText(run.retries, 'further attempt')] : []),
  ]
  const beside = losses.length === 0 ? '' : ` (${losses.join(', ')})`
  if (facts.state === 'running') {
    const sentence =
      `The run goes on: so far, after ${seconds}, ${completed} of ${countText(tasks, 'task')} ` +
      `${completed === 1 ? 'is' : 'are'} done, ${failed} ${failed === 1 ? 'has' : 'have'} failed ` +
      `and ${open} ${open === 1 ? 'is' : 'are'} open${beside}.`
    return { mood: failed > 0 ? 'bad' : 'good', sentence }
  }
  if (run.endTime === null) {
    const sentence =
      `The run has no end: after ${seconds} ${completed} of ${countText(tasks, 'task')} were ` +
      `done, ${failed} had failed and ${open} were open${beside}.`
    return { mood: 'warning', sentence }
  }
  if (tasks === 0) return { mood: 'warning', sentence: `The run had no task; it took ${seconds}.` }
  if (failed === 0 && canceled === 0 && open === 0) {
    const all = tasks === 1 ? 'Its only task' : `All ${countText(tasks, 'task')}`
    return { mood: 'good', sentence: `${all} succeeded in ${seconds}${beside}.` }
  }
  const parts = [
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(canceled > 0 ? [`${canceled} were canceled`] : []),
    ...(open > 0 ? [`${open} have no end`] : []),
  ]
  const sentence =
    `${completed.toLocaleString('en')} of ${countText(tasks, 'task')} succeeded in ${seconds}; ` +
    `${parts.join(', ')}${beside}.`
  return { mood: failed > 0 ? 'bad' : 'warning', sentence }
}
