/** A run's progress and its end in words. Pure: a view in, lines out. */

import { styleText } from 'node:util'
import type { FailureGroup, NameView, RunView } from '../view/run-view.ts'

const barWidth = 20

/** One line for every kind of task. */
export function progressLines(view: RunView, now: number): string[] {
  const names = [...view.names.values()]
  const widest = Math.max(0, ...names.map(({ name }) => shortName(name).length))
  const elapsed = Math.max(1e-3, now - (view.startTime ?? now))
  return names.map((name) => progressLine(name, widest, elapsed))
}

function progressLine(name: NameView, widest: number, elapsed: number): string {
  const ended = name.completed + name.failed + name.canceled
  const filled = name.total === 0 ? 0 : Math.floor((ended / name.total) * barWidth)
  const bar = '█'.repeat(filled) + '░'.repeat(barWidth - filled)
  const rate = ended / elapsed
  const parts = [
    shortName(name.name).padEnd(widest),
    bar,
    `${String(ended).padStart(String(name.total).length)}/${name.total}`,
    `ok ${name.completed}`,
    name.failed > 0 ? styleText('red', `failed ${name.failed}`) : '',
    name.canceled > 0 ? `canceled ${name.canceled}` : '',
    name.running > 0 ? `running ${name.running}` : '',
    ended > 0 ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s` : '',
    ended > 0 && ended < name.total ? `ETA ${Math.ceil((name.total - ended) / rate)}s` : '',
  ]
  return parts.filter((part) => part !== '').join('  ')
}

/** What is left to say when it is over: counts, and failures by their cause. */
export function summaryLines(view: RunView): string[] {
  const { created, completed, failed, canceled } = view.totals
  const seconds = Math.max(0, (view.endTime ?? view.lastTime) - (view.startTime ?? view.lastTime))
  const parts = [
    `${created} tasks in ${seconds.toFixed(1)} s`,
    `${completed} done`,
    `${failed} failed`,
    `${canceled} canceled`,
  ]
  if (view.attempts > 0) parts.push(`${view.attempts} further attempts`)
  if (view.workersLost > 0) parts.push(`${view.workersLost} workers lost`)
  return [parts.join(', '), ...batchLines(view), ...failureLines([...view.failures.values()])]
}

function batchLines({ batches }: RunView): string[] {
  const { count, requests } = batches
  if (count === 0) return []
  return [`  ${requests} prompts in ${count} batches (${(requests / count).toFixed(1)} each)`]
}

const mostGroups = 5

function failureLines(groups: readonly FailureGroup[]): string[] {
  const largest = groups.toSorted((a, b) => b.count - a.count)
  const lines = largest
    .slice(0, mostGroups)
    .map(
      ({ count, name, errorType, message, firstTask }) =>
        `  ${count} x ${shortName(name)}: ${errorType} "${firstLine(message)}" ` +
        `(first: ${firstTask})`,
    )
  const rest = largest.length - lines.length
  return rest > 0 ? [...lines, `  and ${rest} other causes`] : lines
}

const firstLine = (text: string): string => text.split('\n', 1)[0]?.slice(0, 100) ?? ''

const shortName = (name: string): string => name.split('/').at(-1) ?? name
