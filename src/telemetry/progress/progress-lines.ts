/** The progress block and the summary of a run as lines of text. Pure: views in, lines out. */

import { stripVTControlCharacters, styleText } from 'node:util'
import { displayWidth, padColumns } from '../../foundation/text/display-width.ts'
import { counts } from '../../views/panels/counts.ts'
import { causeLines, failures } from '../../views/panels/failures.ts'
import { countReused, names, type NameView } from '../../views/panels/names.ts'
import type { Pass } from '../../views/pass.ts'
import { pace, type PaceView } from '../../views/panels/pace.ts'
import {
  computeSpeed,
  countDone,
  countLeft,
  type Speed,
  sumNames,
} from '../../views/panels/pace.ts'
import { countText, cutMiddle, escapeControls, numberText } from '../../views/readable.ts'
import { progressText, secondsText, shortNames } from '../../views/readable.ts'
import { run } from '../../views/panels/run.ts'

export const progressPanels = { run, names, failures, pace }

export type ProgressPass = Pass<typeof progressPanels>

const maxBarCells = 20
/** The minimum width of a bar. If there is less room, no bar is shown. */
const minBarCells = 4
const gap = '  '

/** The numbers of one kind of task in display order. Empty texts are not shown. */
interface RowNumbers {
  ended: string
  reused: string
  ok: string
  failed: string
  canceled: string
  running: string
  waiting: string
  progress: string
  rate: string
  timeLeft: string
}

/** The order in which numbers are left out if the line is too short. Failures always stay. */
const omitOrder = [
  'progress',
  'timeLeft',
  'rate',
  'waiting',
  'running',
  'ok',
  'reused',
  'canceled',
  'ended',
] as const

export interface LineOptions {
  readonly width?: number
  readonly max?: number
  readonly hasBars?: boolean
  readonly isColored?: boolean
  /** When the display began. Used as the start of a run whose SessionStarted was not seen. */
  readonly since?: number
  /**
   * Prevents bars of a redrawn block from becoming wider again. Default: they use all free width.
   */
  readonly barWidth?: BarWidth
}

/**
 * The width of the bars in a redrawn block. Bars use the rest of each line, so without this, their
 * width would change whenever a number appears or disappears.
 */
export class BarWidth {
  #lineWidth = 0
  #cells = 0

  /** Returns the width of the bars, which never grows for the same line width. */
  next(lineWidth: number, spare: number): number {
    const max = lineWidth === this.#lineWidth ? this.#cells : maxBarCells
    this.#lineWidth = lineWidth
    this.#cells = spare < minBarCells ? 0 : Math.min(max, spare)
    return this.#cells
  }
}

/**
 * Returns one line per kind of task (name). If `width` is too small, all bars shrink and then
 * disappear, then numbers are left out in the order of `omitOrder`. If there are more than `max`
 * names, shows names with running tasks first, and adds the total.
 */
export function progressLines(
  pass: ProgressPass,
  now: number,
  options: LineOptions = {},
): string[] {
  const { width = Infinity, max = Infinity, hasBars = true, isColored = false } = options
  const { since = now, barWidth = new BarWidth() } = options
  const all = names.show(pass.states.names, { durations: false })
  const isCut = all.length > max
  const shown = isCut ? sortByActivity(all).slice(0, Math.max(0, max - 2)) : all
  const begin = run.show(pass.states.run).startTime ?? since
  const paceOf = (views: readonly NameView[]): PaceView => {
    const query = { namesState: pass.states.names, names: views.map(({ name }) => name), now }
    return pace.show(pass.states.pace, query)
  }
  const shortOf = shortNames(shown.map(({ name }) => name))
  const rows = shown.map((view) => {
    const speed = computeSpeed(view, paceOf([view]), begin, now)
    return toRow(view, shortOf(view.name), speed, isColored)
  })
  if (isCut) {
    const total = sumNames(all)
    const speed = computeSpeed(total, paceOf(all), begin, now)
    rows.push(toRow(total, total.name, speed, isColored))
  }
  const widest = maxOf(rows.map(({ label }) => displayWidth(label)))
  const labelWidth = Math.min(widest, Math.max(1, Math.floor(width / 3)))
  const room = width - labelWidth - gap.length
  const spare = room - gap.length - maxOf(rows.map(({ numbers }) => numbersWidth(numbers)))
  const cells = hasBars ? barWidth.next(width, spare) : 0
  const lines = rows.map(({ label, done, numbers }) =>
    [
      hasBars ? padColumns(cutMiddle(label, labelWidth), labelWidth) : label,
      drawBar(done, cells),
      joinNumbers(fitNumbers(numbers, room)),
    ]
      .filter((part) => part !== '')
      .join(gap),
  )
  if (isCut) lines.splice(-1, 0, `and ${numberText(all.length - shown.length)} more`)
  return lines.slice(-max)
}

function sortByActivity(all: readonly NameView[]): readonly NameView[] {
  const rankOf = (name: NameView): number => (name.running > 0 ? 0 : countLeft(name) > 0 ? 1 : 2)
  return [0, 1, 2].flatMap((rank) => all.filter((name) => rankOf(name) === rank))
}

/** `Math.max(...numbers)` would overflow the stack if there are very many numbers. */
const maxOf = (numbers: readonly number[]): number =>
  numbers.reduce((max, one) => Math.max(max, one), 0)

interface Row {
  readonly label: string
  readonly numbers: RowNumbers
  /** The completed fraction, from 0 to 1. */
  readonly done: number
}

function toRow(
  name: NameView,
  shownName: string,
  { rate, secondsLeft }: Speed,
  isColored: boolean,
): Row {
  const done = countDone(name)
  const failed = `failed ${numberText(name.failed)}`
  const running = name.running - name.waiting
  const numbers = {
    ended: `${numberText(done).padStart(numberText(name.total).length)}/${numberText(name.total)}`,
    reused: name.reused > 0 ? `reused ${numberText(name.reused)}` : '',
    ok: `ok ${numberText(name.completed - name.reused)}`,
    failed: name.failed === 0 ? '' : isColored ? inRed(failed) : failed,
    canceled: name.canceled > 0 ? `canceled ${numberText(name.canceled)}` : '',
    running: running > 0 ? `running ${numberText(running)}` : '',
    // Tasks that wait for their next attempt. `name.running` includes them, because their state is
    // RUNNING.
    waiting: name.waiting > 0 ? `waiting ${numberText(name.waiting)}` : '',
    progress: progressLabel(name),
    rate: rate === null ? '' : perSecondText(rate),
    timeLeft: secondsLeft === null ? '' : `ETA ${timeLeftText(secondsLeft)}`,
  }
  const sum = done + (name.progress?.sum ?? 0)
  // Names are untrusted, so control characters are escaped.
  const label = escapeControls(shownName)
  return { label, numbers, done: name.total === 0 ? 0 : sum / name.total }
}

function perSecondText(rate: number): string {
  if (rate > 0 && rate < 0.095) return `${(rate * 60).toFixed(1)}/min`
  return `${rate === 0 || rate >= 9.95 ? numberText(Math.round(rate)) : rate.toFixed(1)}/s`
}

const timeLeftText = (seconds: number): string =>
  seconds < 59.5 ? `${Math.ceil(seconds)} s` : secondsText(seconds)

const progressLabel = ({ progress }: NameView): string =>
  progress === null ? '' : `at ${escapeControls(progressText(progress.mean, progress.text))}`

/** Uses `validateStream: false`, because the caller knows whether the stream supports colors. */
const inRed = (text: string): string => styleText('red', text, { validateStream: false })

const joinNumbers = (numbers: RowNumbers): string =>
  Object.values(numbers)
    .filter((part) => part !== '')
    .join(gap)

const numbersWidth = (numbers: RowNumbers): number =>
  displayWidth(stripVTControlCharacters(joinNumbers(numbers)))

function fitNumbers(numbers: RowNumbers, width: number): RowNumbers {
  const kept = { ...numbers }
  for (const one of omitOrder) {
    if (numbersWidth(kept) <= width) break
    kept[one] = ''
  }
  return kept
}

function drawBar(done: number, width: number): string {
  const filled = Math.floor(done * width)
  return '█'.repeat(filled) + '░'.repeat(width - filled)
}

/** Lines for a finished run: counts, and failures by cause. `since` is as in `LineOptions`. */
export function summaryLines(pass: ProgressPass, since?: number): string[] {
  const { tasks, completed, failed, canceled, open } = counts.show(pass.counts)
  const facts = run.show(pass.states.run)
  const { startTime, endTime, lastTime, retries, workersLost } = facts
  const reused = countReused(pass.states.names)
  const from = startTime ?? since ?? lastTime
  const seconds = facts.durationSeconds ?? Math.max(0, (endTime ?? lastTime) - from)
  const parts = [
    `${countText(tasks, 'task')} in ${secondsText(seconds)}`,
    `${numberText(completed)} done${reused === 0 ? '' : ` (${numberText(reused)} of them reused)`}`,
    `${numberText(failed)} failed`,
    `${numberText(canceled)} canceled`,
  ]
  // Tasks may still be open here, for example if `close` is running and has not canceled them yet.
  if (open > 0) parts.push(`${numberText(open)} not ended`)
  if (retries > 0) parts.push(countText(retries, 'further attempt'))
  if (workersLost > 0) parts.push(`${countText(workersLost, 'worker')} lost`)
  const causes = causeLines(pass.states.failures, maxGroups)
  return [parts.join(', '), ...batchLines(facts), ...causes.map((line) => `  ${line}`)]
}

function batchLines({ batches, batchedRequests }: ReturnType<typeof run.show>): string[] {
  if (batches === 0) return []
  const size = (batchedRequests / batches).toFixed(1)
  const prompts = countText(batchedRequests, 'prompt')
  return [`  ${prompts} in ${countText(batches, 'batch', 'batches')} (${size} each)`]
}

const maxGroups = 5
