/** The timeline of the report: the tasks of each worker over time. Pure. */

import { countText, secondsText, shortName, shortNames } from '../../views/readable.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import type { Outcome, SegmentView } from '../../views/panels/lanes.ts'
import type { ReportData } from '../report-data.ts'
import { colourOf, legend } from './charts.ts'
import { escape, rounded } from './html.ts'

const laneHeight = 16
const maxRows = 64
const width = 1000

/** Shows up to 5,000 segments; larger runs are shown as blocks that sum up many segments. */
export function timeline(data: ReportData): string {
  const { lanes } = data
  const blocks = lanes.level === 0 ? lanes.segments : lanes.cells
  if (lanes.lanes.length === 0 || blocks.length === 0) return ''
  const rows = placeInRows(data)
  const { pauses } = data.bounds
  const range = rangeOf(data)
  const [from, to] = [activeTime(pauses, range.from), activeTime(pauses, range.to)]
  const toX = (time: number): number =>
    (width * (activeTime(pauses, time) - from)) / Math.max(1e-9, to - from)
  const colours = nameColours(data)
  const rects =
    lanes.level === 0
      ? lanes.segments.map((segment, at) =>
          segmentRect(segment, rows.ofSegment[at] ?? -1, data, toX, colours),
        )
      : lanes.cells.map((cell) => cellRect(cell, rows.ofLane[cell.lane] ?? -1, toX))
  const height = rows.labels.length * laneHeight
  const labels = rows.labels.map((id) => `<div title="${escape(id)}">&lrm;${escape(id)}</div>`)
  const ticks = [0, 0.25, 0.5, 0.75, 1].map(
    (share) => `<span>${escape(secondsText(share * (to - from)))}</span>`,
  )
  return (
    `<div class="controls screen"><button type="button" data-zoom="0.5">zoom in</button>` +
    `<button type="button" data-zoom="2">zoom out</button>` +
    `<button type="button" data-move="-0.5">earlier</button>` +
    `<button type="button" data-move="0.5">later</button>` +
    `<button type="button" data-zoom="all">all</button></div>` +
    `<div class="lanes"><div class="names">${labels.join('')}</div>` +
    `<svg id="lanes" viewBox="0 0 ${width} ${height}" height="${height}" ` +
    `preserveAspectRatio="none" data-seconds="${to - from}" role="img" ` +
    `aria-label="what each worker did when">${rects.join('')}</svg>` +
    `<div class="axis" id="axis">${ticks.join('')}</div></div>` +
    legendOf(data, colours) +
    notesOf(data, rows)
  )
}

interface Rows {
  /** The worker of each row, numbered if it has several. */
  readonly labels: readonly string[]
  /** The row of each segment; -1 if the segment is not shown. */
  readonly ofSegment: readonly number[]
  /** The row of each worker's cells, if segments are summed up; -1 if the worker is not shown. */
  readonly ofLane: readonly number[]
  readonly shownLanes: number
}

/**
 * A worker that runs several tasks at a time, such as a launcher of programs, has several rows. If
 * there are too many, the busiest rows are shown, in the order of their workers. Closures and
 * prompts, which use no slots, come last and get few rows.
 */
function placeInRows(data: ReportData): Rows {
  const { lanes, level, segments, cells } = data.lanes
  const ends: number[][] = lanes.map(() => [-Infinity])
  const busy: number[][] = lanes.map(() => [0])
  if (level > 0) for (const cell of cells) add(busy[cell.lane], 0, cell.busySeconds)
  const withinLane: number[] = []
  const order = segments.map((_, at) => at)
  order.sort((a, b) => (segments[a]?.start ?? 0) - (segments[b]?.start ?? 0))
  for (const at of level === 0 ? order : []) {
    const segment = segments[at]
    const ofLane = ends[segment?.lane ?? -1]
    if (segment === undefined || ofLane === undefined) continue
    const free = ofLane.findIndex((end) => end <= segment.start)
    const row = free === -1 ? ofLane.length : free
    ofLane[row] = segment.end
    withinLane[at] = row
    add(busy[segment.lane], row, segment.end - segment.start)
  }
  const sized = new Set(data.bounds.backends.map(({ backend }) => backend))
  const isUnsized = lanes.map(({ id, backend }) => !sized.has(backend) || id.endsWith('/main'))
  const numbers = numberBusiest(busy, isUnsized)
  const labels: string[] = []
  for (const [lane, { id }] of lanes.entries()) {
    const shown = (numbers[lane] ?? []).filter((row) => row !== -1)
    for (const [at, row] of shown.entries()) {
      labels[row] = shown.length === 1 ? id : `${id} #${at + 1}`
    }
  }
  const ofSegment = segments.map(({ lane }, at) => numbers[lane]?.[withinLane[at] ?? 0] ?? -1)
  const ofLane = numbers.map(([row = -1]) => row)
  const shownLanes = numbers.filter((rows) => rows.some((row) => row !== -1)).length
  return { labels, ofSegment, ofLane, shownLanes }
}

function add(sums: number[] | undefined, at: number, seconds: number): void {
  if (sums !== undefined) sums[at] = (sums[at] ?? 0) + seconds
}

/** An additional row with less than this share of the busiest row's time would look empty. */
const emptyShare = 0.001
/** More rows of concurrent closures or prompts would hide the workers. */
const maxUnsizedRows = 4

/** Returns the position of each row of each lane, or -1. Equally busy rows keep their order. */
function numberBusiest(
  busy: readonly (readonly number[])[],
  isUnsized: readonly boolean[],
): number[][] {
  const max = busy.flat().reduce((longest, seconds) => Math.max(longest, seconds), 0)
  const all = busy
    .flatMap((rows, lane) => rows.map((seconds, row) => ({ lane, row, seconds })))
    .filter(({ row, seconds }) => row === 0 || seconds >= emptyShare * max)
    .filter(({ lane, row }) => isUnsized[lane] !== true || row < maxUnsizedRows)
  const shown = all.toSorted((a, b) => b.seconds - a.seconds).slice(0, maxRows)
  const rankOf = ({ lane }: { lane: number }): number => (isUnsized[lane] === true ? 1 : 0)
  shown.sort((a, b) => rankOf(a) - rankOf(b) || a.lane - b.lane || a.row - b.row)
  const numbers = busy.map((rows) => rows.map(() => -1))
  for (const [at, { lane, row }] of shown.entries()) {
    const ofLane = numbers[lane]
    if (ofLane !== undefined) ofLane[row] = at
  }
  return numbers
}

function rangeOf({ lanes, run, bounds }: ReportData): { from: number; to: number } {
  const blocks = lanes.level === 0 ? lanes.segments : lanes.cells
  const first = blocks.reduce((min, { start }) => Math.min(min, start), Infinity)
  const last = blocks.reduce((max, { end }) => Math.max(max, end), -Infinity)
  return { from: Math.min(run.startTime ?? first, first), to: Math.max(last, bounds.to) }
}

const nameColours = ({ names }: ReportData): ReadonlyMap<string, string> =>
  new Map(names.map(({ name }, at) => [name, colourOf(at)]))

const outcomeColours: Readonly<Partial<Record<Outcome, string>>> = {
  failed: 'red',
  retried: 'red',
  lost: 'red',
  canceled: 'grey',
}

function segmentRect(
  segment: SegmentView,
  row: number,
  { uidOf, nameOf }: ReportData,
  toX: (time: number) => number,
  colours: ReadonlyMap<string, string>,
): string {
  const { task, start, end, outcome } = segment
  if (row === -1) return ''
  const name = nameOf(task)
  const colour = outcomeColours[outcome] ?? colours.get(name) ?? 'c7'
  const title = `${uidOf(task)} ${shortName(name)}: ${outcome}, ${secondsText(end - start)}`
  return (
    `<rect class="${colour}" x="${rounded(toX(start))}" y="${row * laneHeight + 2}" ` +
    `width="${rounded(Math.max(0.4, toX(end) - toX(start)))}" height="12">` +
    `<title>${escape(title)}</title></rect>`
  )
}

/** The height of a cell is the share of busy time; its lower part marks failed attempts. */
function cellRect(
  cell: ReportData['lanes']['cells'][number],
  row: number,
  toX: (time: number) => number,
): string {
  const { start, end, busySeconds, segments, failed } = cell
  if (row === -1) return ''
  const share = end > start ? Math.min(1, busySeconds / (end - start)) : 1
  const height = Math.max(1, 13 * share)
  const foot = failed === 0 ? 0 : Math.max(1.5, (height * failed) / segments)
  const busy = Math.round(100 * share)
  const title = `${countText(segments, 'attempt')}, ${failed} failed, busy ${busy} %`
  const bar = (colour: string, size: number): string =>
    `<rect class="${colour}" x="${rounded(toX(start))}" ` +
    `y="${rounded(row * laneHeight + 14.5 - size)}" ` +
    `width="${rounded(Math.max(0.4, toX(end) - toX(start)))}" height="${rounded(size)}">` +
    `<title>${escape(title)}</title></rect>`
  return bar('c0', height) + (foot > 0 ? bar('red', foot) : '')
}

function legendOf(data: ReportData, colours: ReadonlyMap<string, string>): string {
  if (data.lanes.level > 0) {
    return legend([
      { label: 'busy, by the height of the block', colour: 'c0', text: '' },
      { label: 'the share of failed attempts', colour: 'red', text: '' },
    ])
  }
  const shortOf = shortNames(data.names.map(({ name }) => name))
  const names = data.names
    .slice(0, 12)
    .map(({ name }) => ({ label: shortOf(name), colour: colours.get(name) ?? 'c7', text: '' }))
  return legend([
    ...names,
    { label: 'failed, retried or lost', colour: 'red', text: '' },
    { label: 'canceled', colour: 'grey', text: '' },
  ])
}

function notesOf({ lanes, bounds }: ReportData, { shownLanes, ofSegment }: Rows): string {
  const notes: string[] = []
  if (bounds.pauses.length > 0) notes.push('Times between two files of the run are left out.')
  const left = lanes.lanes.length - shownLanes
  const attempts = ofSegment.filter((row) => row === -1).length
  const lacking = [
    ...(left > 0 ? [countText(left, 'more worker')] : []),
    ...(attempts > 0 ? [countText(attempts, 'attempt')] : []),
  ]
  if (lacking.length > 0) notes.push(`Not shown: ${lacking.join(' and ')}, the least busy ones.`)
  if (lanes.level > 0) notes.push(`A block is up to ${16 ** lanes.level} attempts.`)
  if (lanes.onlyCoarse > 0)
    notes.push(`Shown only as blocks: ${countText(lanes.onlyCoarse, 'older attempt')}.`)
  return notes.length === 0 ? '' : `<p class="muted">${escape(notes.join(' '))}</p>`
}
