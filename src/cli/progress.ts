/** A run's progress and its end in words. Pure: a view in, lines out. */

import { stripVTControlCharacters, styleText } from 'node:util'
import type { FailureGroup, NameView, RunView } from '../views/run-view.ts'
import { escapeControls } from './control-characters.ts'

const widestBar = 20
/** A shorter bar says nothing. */
const narrowestBar = 4
const gap = '  '

/** What is known of one kind of task, in the order of the line; empty where there is nothing. */
interface Numbers {
  ended: string
  ok: string
  failed: string
  canceled: string
  running: string
  rate: string
  timeLeft: string
}

/** What goes first where the room is short. Failures stay. */
const dispensable = ['timeLeft', 'rate', 'running', 'ok', 'canceled', 'ended'] as const

/**
 * One line for every kind of task. Where `width` is short, the bars shrink and go, all alike, then
 * the numbers that can be spared.
 */
export function progressLines(view: RunView, now: number, width = Infinity): string[] {
  const names = [...view.names.values()]
  const widest = widestOf(names.map(({ name }) => shortName(name).length))
  const labelWidth = Math.min(widest, Math.max(1, Math.floor(width / 3)))
  const elapsed = Math.max(1e-3, now - (view.startTime ?? now))
  const room = width - labelWidth - gap.length
  const rows = names.map((name) => ({ name, numbers: toNumbers(name, elapsed) }))
  const spare = room - gap.length - widestOf(rows.map(({ numbers }) => lengthOf(numbers)))
  const barWidth = spare < narrowestBar ? 0 : Math.min(widestBar, spare)
  return rows.map(({ name, numbers }) =>
    [
      fit(shortName(name.name), labelWidth),
      toBar(name, barWidth),
      joined(spareNumbers(numbers, room)),
    ]
      .filter((part) => part !== '')
      .join(gap),
  )
}

/** Of any number of numbers, which `Math.max` does not take. */
const widestOf = (numbers: readonly number[]): number =>
  numbers.reduce((most, one) => Math.max(most, one), 0)

const endedOf = ({ completed, failed, canceled }: NameView): number => completed + failed + canceled

function toNumbers(name: NameView, elapsed: number): Numbers {
  const ended = endedOf(name)
  const rate = ended / elapsed
  const failed = `failed ${name.failed}`
  const timeLeft = `ETA ${Math.ceil((name.total - ended) / rate)}s`
  return {
    ended: `${String(ended).padStart(String(name.total).length)}/${name.total}`,
    ok: `ok ${name.completed}`,
    failed: name.failed > 0 ? styleText('red', failed, { stream: process.stderr }) : '',
    canceled: name.canceled > 0 ? `canceled ${name.canceled}` : '',
    running: name.running > 0 ? `running ${name.running}` : '',
    rate: ended > 0 ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s` : '',
    timeLeft: ended > 0 && ended < name.total ? timeLeft : '',
  }
}

const joined = (numbers: Numbers): string =>
  Object.values(numbers)
    .filter((part) => part !== '')
    .join(gap)

const lengthOf = (numbers: Numbers): number => stripVTControlCharacters(joined(numbers)).length

function spareNumbers(numbers: Numbers, width: number): Numbers {
  const kept = { ...numbers }
  for (const one of dispensable) {
    if (lengthOf(kept) <= width) break
    kept[one] = ''
  }
  return kept
}

function toBar(name: NameView, width: number): string {
  const filled = name.total === 0 ? 0 : Math.floor((endedOf(name) / name.total) * width)
  return '█'.repeat(filled) + '░'.repeat(width - filled)
}

const fit = (text: string, width: number): string =>
  text.length > width ? `${text.slice(0, width - 1)}…` : text.padEnd(width)

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

/** Without its folders; names are foreign text. */
const shortName = (name: string): string => escapeControls(name.split('/').at(-1) ?? name)
