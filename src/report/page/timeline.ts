/** The timeline of the report: the tasks of each worker over time. Pure. */

import { countText, secondsText, shortName, shortNames } from '../../views/readable.ts'
import { activeTime } from '../../views/bounds/bounds-state.ts'
import type { Outcome, SegmentView } from '../../views/panels/lanes.ts'
import { type LaneRows, placeInRows } from '../../views/panels/lane-rows.ts'
import type { ReportData } from '../report-data.ts'
import { colourOf, legend } from './charts.ts'
import { escape, rounded } from './html.ts'

const laneHeight = 16
const maxRows = 64
const width = 1000

/** Shows up to 5,000 attempts as single blocks. In larger runs, each block combines several. */
export function timeline(data: ReportData): string {
  const { lanes } = data
  const blocks = lanes.level === 0 ? lanes.segments : lanes.cells
  if (lanes.lanes.length === 0 || blocks.length === 0) return ''
  const sized = new Set(data.bounds.backends.map(({ backend }) => backend))
  const rows = placeInRows(lanes, sized, maxRows)
  const { pauses } = data.bounds
  const range = timeRange(data)
  const [from, to] = [activeTime(pauses, range.from), activeTime(pauses, range.to)]
  const toX = (time: number): number =>
    (width * (activeTime(pauses, time) - from)) / Math.max(1e-9, to - from)
  const colours = nameColours(data)
  const rects =
    lanes.level === 0
      ? lanes.segments.map((segment, at) =>
          segmentRect(segment, rows.rowOfSegment[at] ?? -1, data, toX, colours),
        )
      : lanes.cells.map((cell) => cellRect(cell, rows.rowOfLane[cell.lane] ?? -1, toX))
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
    timelineLegend(data, colours) +
    timelineNotes(data, rows)
  )
}

function timeRange({ lanes, run, bounds }: ReportData): { from: number; to: number } {
  const blocks = lanes.level === 0 ? lanes.segments : lanes.cells
  const first = blocks.reduce((min, { start }) => Math.min(min, start), Infinity)
  const last = blocks.reduce((max, { end }) => Math.max(max, end), -Infinity)
  return { from: Math.min(run.startTime ?? first, first), to: Math.max(last, bounds.to) }
}

const nameColours = ({ names }: ReportData): ReadonlyMap<string, string> =>
  new Map(names.map(({ name, colour }) => [name, colourOf(colour)]))

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

/** Draws a cell. Its height is the share of busy time, and its lower part marks failed attempts. */
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

function timelineLegend(data: ReportData, colours: ReadonlyMap<string, string>): string {
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

function timelineNotes(
  { lanes, bounds }: ReportData,
  { shownLanes, rowOfSegment }: LaneRows,
): string {
  const notes: string[] = []
  if (bounds.pauses.length > 0) notes.push('Times between two files of the run are left out.')
  const hiddenLanes = lanes.lanes.length - shownLanes
  const hiddenAttempts = rowOfSegment.filter((row) => row === -1).length
  const hiddenTexts = [
    ...(hiddenLanes > 0 ? [countText(hiddenLanes, 'more worker')] : []),
    ...(hiddenAttempts > 0 ? [countText(hiddenAttempts, 'attempt')] : []),
  ]
  if (hiddenTexts.length > 0)
    notes.push(`Not shown: ${hiddenTexts.join(' and ')}, the least busy ones.`)
  if (lanes.level > 0) notes.push(`A block is up to ${16 ** lanes.level} attempts.`)
  return notes.length === 0 ? '' : `<p class="muted">${escape(notes.join(' '))}</p>`
}
