/** The progress block and the summary of a run as lines of text. Pure: views in, lines out. */

import { stripVTControlCharacters, styleText } from 'node:util'
import { counts } from '../../views/panels/counts.ts'
import { failures } from '../../views/panels/failures.ts'
import { allReused, names, type NameView } from '../../views/panels/names.ts'
import type { Pass } from '../../views/pass.ts'
import {
  countText,
  cutText,
  escapeControls,
  firstLine,
  nameAndProgram,
} from '../../views/readable.ts'
import { percentText, secondsText } from '../../views/readable.ts'
import { shortName as shortOf } from '../../views/readable.ts'
import { run } from '../../views/panels/run.ts'

/** The panels that the progress block and the summary show. */
export const progressPanels = { run, names, failures }

export type ProgressPass = Pass<typeof progressPanels>

const widestBar = 20
/** A shorter bar is not shown. */
const narrowestBar = 4
const gap = '  '
const longestProgressText = 40

/** The numbers of one name in the order of the line; empty texts are not shown. */
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

/** In the order in which numbers are left out if the line is too short. Failures always stay. */
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
  /** Default `true`; in a log file the numbers are enough. */
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

  /** The cells of a bar if `spare` are free: no more than before for the same line width. */
  next(lineWidth: number, spare: number): number {
    const most = lineWidth === this.#lineWidth ? this.#cells : widestBar
    this.#lineWidth = lineWidth
    this.#cells = spare < narrowestBar ? 0 : Math.min(most, spare)
    return this.#cells
  }
}

/**
 * One line per name. If `width` is too small, all bars shrink and then disappear, then numbers are
 * left out in the order of `dispensable`.
 */
export function progressLines(
  pass: ProgressPass,
  now: number,
  options: LineOptions = {},
): string[] {
  const { width = Infinity, hasBars = true, isColored = false, since = now } = options
  const { barWidth = new BarWidth() } = options
  const shown = names.show(pass.states.names, { durations: false })
  const { startTime } = run.show(pass.states.run)
  const widest = widestOf(shown.map(({ name }) => shortName(name).length))
  const labelWidth = Math.min(widest, Math.max(1, Math.floor(width / 3)))
  const elapsed = Math.max(1e-3, now - (startTime ?? since))
  const room = width - labelWidth - gap.length
  const rows = shown.map((name) => ({ name, numbers: toNumbers(name, elapsed, isColored) }))
  const spare = room - gap.length - widestOf(rows.map(({ numbers }) => lengthOf(numbers)))
  const cells = hasBars ? barWidth.next(width, spare) : 0
  return rows.map(({ name, numbers }) =>
    [
      hasBars ? cutText(shortName(name.name), labelWidth).padEnd(labelWidth) : shortName(name.name),
      toBar(name, cells),
      joined(spareNumbers(numbers, room)),
    ]
      .filter((part) => part !== '')
      .join(gap),
  )
}

/** `Math.max` with very many arguments overflows the stack. */
const widestOf = (numbers: readonly number[]): number =>
  numbers.reduce((most, one) => Math.max(most, one), 0)

const endedOf = ({ completed, failed, canceled }: NameView): number => completed + failed + canceled

function toNumbers(name: NameView, elapsed: number, isColored: boolean): Numbers {
  const ended = endedOf(name)
  // Reused tasks took no time and say nothing about the remaining ones.
  const ran = ended - name.reused
  const rate = ran / elapsed
  const failed = `failed ${name.failed}`
  const running = name.running - name.waiting
  const secondsLeft = (name.total - ended) / rateOfWork(ran, running, elapsed)
  return {
    ended: `${String(ended).padStart(String(name.total).length)}/${name.total}`,
    reused: name.reused > 0 ? `reused ${name.reused}` : '',
    ok: `ok ${name.completed - name.reused}`,
    failed: name.failed === 0 ? '' : isColored ? inRed(failed) : failed,
    canceled: name.canceled > 0 ? `canceled ${name.canceled}` : '',
    running: running > 0 ? `running ${running}` : '',
    // Waiting for their next attempt; `name.running` includes them, because their state is RUNNING.
    waiting: name.waiting > 0 ? `waiting ${name.waiting}` : '',
    progress: toProgress(name),
    rate: ran > 0 ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s` : '',
    timeLeft: ran > 0 && ended < name.total ? `ETA ${timeLeftText(secondsLeft)}` : '',
  }
}

/**
 * Assumes that running tasks are half done: with many at a time, the rate of ended tasks alone
 * would give a far too long time at the beginning.
 */
const rateOfWork = (ran: number, running: number, elapsed: number): number =>
  (ran + running / 2) / elapsed

const timeLeftText = (seconds: number): string =>
  seconds < 100 ? `${Math.ceil(seconds)}s` : secondsText(seconds)

/** The progress that tasks report: the mean, and the latest text. */
function toProgress({ progress }: NameView): string {
  if (progress === null) return ''
  const percent = `at ${percentText(progress.mean)}`
  const text = escapeControls(firstLine(progress.text, longestProgressText))
  return text === '' ? percent : `${percent} (${text})`
}

/** The caller knows whether the stream supports colors. */
const inRed = (text: string): string => styleText('red', text, { validateStream: false })

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
  const done = endedOf(name) + (name.progress === null ? 0 : name.progress.sum)
  const filled = name.total === 0 ? 0 : Math.floor((done / name.total) * width)
  return '█'.repeat(filled) + '░'.repeat(width - filled)
}

/** A run after its end: counts, and failures by cause; `since` as in `LineOptions`. */
export function summaryLines(pass: ProgressPass, since?: number): string[] {
  const { tasks, completed, failed, canceled, open } = counts.show(pass.counts)
  const facts = run.show(pass.states.run)
  const { startTime, endTime, lastTime, retries, workersLost } = facts
  const reused = allReused(pass.states.names)
  const from = startTime ?? since ?? lastTime
  const seconds = facts.durationSeconds ?? Math.max(0, (endTime ?? lastTime) - from)
  const parts = [
    `${countText(tasks, 'task')} in ${secondsText(seconds)}`,
    reused === 0 ? `${completed} done` : `${completed} done (${reused} of them reused)`,
    `${failed} failed`,
    `${canceled} canceled`,
  ]
  // For example tasks that a running close still has to cancel.
  if (open > 0) parts.push(`${open} not ended`)
  if (retries > 0) parts.push(countText(retries, 'further attempt'))
  if (workersLost > 0) parts.push(`${countText(workersLost, 'worker')} lost`)
  return [parts.join(', '), ...batchLines(facts), ...failureLines(pass)]
}

function batchLines({ batches, batchedRequests }: ReturnType<typeof run.show>): string[] {
  if (batches === 0) return []
  const size = (batchedRequests / batches).toFixed(1)
  const prompts = countText(batchedRequests, 'prompt')
  return [`  ${prompts} in ${countText(batches, 'batch', 'batches')} (${size} each)`]
}

const mostGroups = 5

function failureLines(pass: ProgressPass): string[] {
  const { groups, otherGroups } = failures.show(pass.states.failures, { limit: mostGroups })
  const lines = groups.map(
    ({ count, name, errorType, message, firstTask, example: { program } }) =>
      `  ${count} x ${escapeControls(nameAndProgram(name, program))}: ` +
      `${errorType} "${firstLine(message)}" ` +
      `(first: ${firstTask})`,
  )
  return otherGroups > 0 ? [...lines, `  and ${countText(otherGroups, 'other cause')}`] : lines
}

/** Names are untrusted, so control characters are escaped. */
const shortName = (name: string): string => escapeControls(shortOf(name))
