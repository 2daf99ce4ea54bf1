/** The progress block and the summary of a run as lines of text. Pure: views in, lines out. */

import { stripVTControlCharacters, styleText } from 'node:util'
import { displayWidth, padColumns } from '../../foundation/text/display-width.ts'
import { counts } from '../../views/panels/counts.ts'
import { causeLines, failures } from '../../views/panels/failures.ts'
import { allReused, names, type NameView } from '../../views/panels/names.ts'
import type { Pass } from '../../views/pass.ts'
import { pace, type PaceView } from '../../views/panels/pace.ts'
import { countText, cutMiddle, escapeControls, numberText } from '../../views/readable.ts'
import { progressText, secondsText, shortNames } from '../../views/readable.ts'
import { run } from '../../views/panels/run.ts'

/** The panels that the progress block and the summary show. */
export const progressPanels = { run, names, failures, pace }

export type ProgressPass = Pass<typeof progressPanels>

const widestBar = 20
/** A shorter bar is not shown. */
const minBarCells = 4
const gap = '  '

/** The numbers of one name in display order. Empty texts are not shown. */
interface Numbers {
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
const dispensable = [
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
  /** Default: no limit. */
  readonly width?: number
  /** The maximum number of lines. Default: no limit. */
  readonly max?: number
  /** Default `true`. A log file needs only the numbers. */
  readonly hasBars?: boolean
  /** Default `false`. */
  readonly isColored?: boolean
  /** When the display began: the assumed start of a run whose SessionStarted was not seen. */
  readonly since?: number
  /** For a redrawn block: bars do not become wider again. Default: all available width. */
  readonly barWidth?: BarWidth
}

/**
 * The width of the bars in a redrawn block. Numbers appear and disappear constantly; without this,
 * the bars, which take the rest of the line, would constantly change their width.
 */
export class BarWidth {
  #lineWidth = 0
  #cells = 0

  /**
   * The number of cells of a bar if `spare` are free: never more than before for the same line
   * width.
   */
  next(lineWidth: number, spare: number): number {
    const max = lineWidth === this.#lineWidth ? this.#cells : widestBar
    this.#lineWidth = lineWidth
    this.#cells = spare < minBarCells ? 0 : Math.min(max, spare)
    return this.#cells
  }
}

/**
 * One line per name. If `width` is too small, all bars shrink and then disappear, then numbers are
 * left out in the order of `dispensable`. If there are more than `max` names, names with running
 * tasks take precedence, and the total is added.
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
  const shown = isCut ? runningFirst(all).slice(0, Math.max(0, max - 2)) : all
  const begin = run.show(pass.states.run).startTime ?? since
  const paceOf = (views: readonly NameView[]): PaceView => {
    const query = { of: pass.states.names, names: views.map(({ name }) => name), now }
    return pace.show(pass.states.pace, query)
  }
  const shortOf = shortNames(shown.map(({ name }) => name))
  const rows = shown.map((view) => {
    const speed = speedOf(view, paceOf([view]), begin, now)
    return toRow(view, shortOf(view.name), speed, isColored)
  })
  if (isCut) {
    const total = totalOf(all)
    const speed = speedOf(total, paceOf(all), begin, now)
    rows.push(toRow(total, total.name, speed, isColored))
  }
  const widest = widestOf(rows.map(({ label }) => displayWidth(label)))
  const labelWidth = Math.min(widest, Math.max(1, Math.floor(width / 3)))
  const room = width - labelWidth - gap.length
  const spare = room - gap.length - widestOf(rows.map(({ numbers }) => lengthOf(numbers)))
  const cells = hasBars ? barWidth.next(width, spare) : 0
  const lines = rows.map(({ label, done, numbers }) =>
    [
      hasBars ? padColumns(cutMiddle(label, labelWidth), labelWidth) : label,
      toBar(done, cells),
      joined(spareNumbers(numbers, room)),
    ]
      .filter((part) => part !== '')
      .join(gap),
  )
  if (isCut) lines.splice(-1, 0, `and ${numberText(all.length - shown.length)} more`)
  return lines.slice(-max)
}

/**
 * Names with running tasks, then names with tasks left, then the rest, each in order of appearance.
 */
function runningFirst(all: readonly NameView[]): readonly NameView[] {
  const rankOf = (name: NameView): number => (name.running > 0 ? 0 : leftOf(name) > 0 ? 1 : 2)
  return [0, 1, 2].flatMap((rank) => all.filter((name) => rankOf(name) === rank))
}

/** Sums up all names. */
function totalOf(all: readonly NameView[]): NameView {
  const sum = (key: 'total' | 'running' | 'waiting' | Ended): number =>
    all.reduce((before, name) => before + name[key], 0)
  return {
    name: 'total',
    taskType: '',
    total: sum('total'),
    running: sum('running'),
    waiting: sum('waiting'),
    progress: null,
    completed: sum('completed'),
    reused: sum('reused'),
    failed: sum('failed'),
    canceled: sum('canceled'),
  }
}

type Ended = 'completed' | 'reused' | 'failed' | 'canceled'

/** `Math.max` with very many arguments would overflow the stack. */
const widestOf = (numbers: readonly number[]): number =>
  numbers.reduce((max, one) => Math.max(max, one), 0)

/** Canceled tasks do not count as done. */
const doneOf = ({ completed, failed }: NameView): number => completed + failed

const leftOf = (name: NameView): number => name.total - doneOf(name) - name.canceled

interface Speed {
  /** Tasks per second; `null` if no task has run to completion. */
  readonly rate: number | null
  /** `null` if nothing is left or the rate is unknown. */
  readonly secondsLeft: number | null
}

/** The rate of the last seconds, or the mean for a name whose tasks have all ended. */
function speedOf(name: NameView, own: PaceView, begin: number, now: number): Speed {
  const { ended: ran } = own
  if (ran === 0) return { rate: null, secondsLeft: null }
  const [start, left] = [own.start ?? begin, leftOf(name)]
  const since = (time: number, until: number): number => Math.max(1e-3, until - time)
  if (left === 0) return { rate: ran / since(start, own.end), secondsLeft: null }
  const rate = own.recent / since(Math.max(start, own.recentSince), now)
  const running = name.running - name.waiting
  // A rate from few ended tasks is unreliable. The mean assumes that running tasks are half done:
  // with many at a time, ended tasks alone would give far too long a time at the beginning.
  const mean = (ran + running / 2) / since(start, now)
  const secondsLeft = left / (own.recent < Math.max(10, running) ? mean : rate)
  // Only running tasks are left, and the rate does not predict when a straggler will end.
  const isUnknown = left === running && secondsLeft < own.overdue
  return { rate, secondsLeft: isUnknown ? null : secondsLeft }
}

interface Row {
  readonly label: string
  readonly numbers: Numbers
  /** The completed fraction, from 0 to 1. */
  readonly done: number
}

function toRow(
  name: NameView,
  shownName: string,
  { rate, secondsLeft }: Speed,
  isColored: boolean,
): Row {
  const done = doneOf(name)
  const failed = `failed ${numberText(name.failed)}`
  const running = name.running - name.waiting
  const numbers = {
    ended: `${numberText(done).padStart(numberText(name.total).length)}/${numberText(name.total)}`,
    reused: name.reused > 0 ? `reused ${numberText(name.reused)}` : '',
    ok: `ok ${numberText(name.completed - name.reused)}`,
    failed: name.failed === 0 ? '' : isColored ? inRed(failed) : failed,
    canceled: name.canceled > 0 ? `canceled ${numberText(name.canceled)}` : '',
    running: running > 0 ? `running ${numberText(running)}` : '',
    // Waiting for their next attempt; `name.running` includes them, because their state is RUNNING.
    waiting: name.waiting > 0 ? `waiting ${numberText(name.waiting)}` : '',
    progress: toProgress(name),
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

/** The progress that tasks report: the mean, and the text if only one task is running. */
const toProgress = ({ progress }: NameView): string =>
  progress === null ? '' : `at ${escapeControls(progressText(progress.mean, progress.text))}`

/** The caller knows whether the stream supports colors. */
const inRed = (text: string): string => styleText('red', text, { validateStream: false })

const joined = (numbers: Numbers): string =>
  Object.values(numbers)
    .filter((part) => part !== '')
    .join(gap)

const lengthOf = (numbers: Numbers): number =>
  displayWidth(stripVTControlCharacters(joined(numbers)))

function spareNumbers(numbers: Numbers, width: number): Numbers {
  const kept = { ...numbers }
  for (const one of dispensable) {
    if (lengthOf(kept) <= width) break
    kept[one] = ''
  }
  return kept
}

function toBar(done: number, width: number): string {
  const filled = Math.floor(done * width)
  return '█'.repeat(filled) + '░'.repeat(width - filled)
}

/** Lines for a finished run: counts, and failures by cause. `since` is as in `LineOptions`. */
export function summaryLines(pass: ProgressPass, since?: number): string[] {
  const { tasks, completed, failed, canceled, open } = counts.show(pass.counts)
  const facts = run.show(pass.states.run)
  const { startTime, endTime, lastTime, retries, workersLost } = facts
  const reused = allReused(pass.states.names)
  const from = startTime ?? since ?? lastTime
  const seconds = facts.durationSeconds ?? Math.max(0, (endTime ?? lastTime) - from)
  const parts = [
    `${countText(tasks, 'task')} in ${secondsText(seconds)}`,
    `${numberText(completed)} done${reused === 0 ? '' : ` (${numberText(reused)} of them reused)`}`,
    `${numberText(failed)} failed`,
    `${numberText(canceled)} canceled`,
  ]
  // Tasks may still be open here, for example if a running close has not canceled them yet.
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
