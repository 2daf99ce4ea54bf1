/** Charts of the report as SVG, and its timeline: the tasks of each worker over time. Pure. */

import { activeTime } from '../../views/bounds/bounds-state.ts'
import { type LaneRows, placeInRows } from '../../views/panels/lane-rows.ts'
import type { Outcome, SegmentView } from '../../views/panels/lanes.ts'
import { countText, cutMiddle, numberText, secondsText } from '../../views/readable.ts'
import { shortName, shortNames } from '../../views/readable.ts'
import { assignDepths, type GraphView } from '../../views/panels/graph.ts'
import type { SeriesPoint } from '../../views/series.ts'
import { nameColours } from '../../views/texts/palette.ts'
import type { ReportData } from '../report-data.ts'
import { escape, rounded } from './html.ts'

export interface Share {
  readonly label: string
  readonly value: number
  readonly colour: string
  readonly text: string
}

/** Draws a stacked bar, with a legend that shows the numbers. */
export function shareBar(label: string, shares: readonly Share[]): string {
  const total = shares.reduce((sum, { value }) => sum + value, 0)
  if (total <= 0) return ''
  let at = 0
  const parts = shares.map(({ value, colour }) => {
    const width = (1000 * value) / total
    at += width
    const [x, size] = [rounded(at - width), rounded(width)]
    return `<rect class="${colour}" x="${x}" width="${size}" height="26"/>`
  })
  return (
    `<svg viewBox="0 0 1000 26" height="26" preserveAspectRatio="none" role="img" ` +
    `aria-label="${escape(label)}">${parts.join('')}</svg>${legend(shares)}`
  )
}

export function legend(shares: readonly Pick<Share, 'label' | 'colour' | 'text'>[]): string {
  const items = shares.map(
    ({ label, colour, text }) =>
      `<li><i class="${colour}"></i>${escape(label)}${text === '' ? '' : ` ${escape(text)}`}</li>`,
  )
  return `<ul class="legend">${items.join('')}</ul>`
}

/**
 * Draws a histogram of durations that is small enough for a table cell. Each interval is twice as
 * long as the one before.
 */
export function histogram(counts: readonly number[], shortest: number): string {
  if (counts.length === 0) return ''
  const max = counts.reduce((a, b) => Math.max(a, b), 1)
  const width = 10
  const bars = counts.map((count, at) => {
    const height = count === 0 ? 0 : Math.max(1, (22 * count) / max)
    const x = at * width
    const [y, size] = [rounded(24 - height), rounded(height)]
    return `<rect class="c0" x="${x}" y="${y}" width="8" height="${size}"/>`
  })
  const to = shortest * 2 ** counts.length
  const label = `durations from ${secondsText(shortest)} to ${secondsText(to)}`
  const all = counts.length * width
  return (
    `<svg viewBox="0 0 ${all} 24" style="width:${all}px" height="24" role="img" ` +
    `aria-label="${escape(label)}">${bars.join('')}</svg>`
  )
}

/** Draws percentages over time, from the first measurement to the last. Gaps stay empty. */
export function percentLines(label: string, points: readonly SeriesPoint[], width: number): string {
  const [first, last] = [points[0]?.time ?? 0, points.at(-1)?.time ?? 0]
  const span = Math.max(1e-9, last - first)
  const lines = Array.from({ length: width }, (_, line) => {
    let path = ''
    let isOpen = false
    for (const { time, values } of points) {
      const value = values[line] ?? null
      if (value === null) {
        isOpen = false
        continue
      }
      const y = 100 - Math.min(100, Math.max(0, value))
      path += `${isOpen ? 'L' : 'M'}${rounded((1000 * (time - first)) / span)} ${rounded(y)}`
      isOpen = true
    }
    return path === '' ? '' : `<path class="line${line % 3}" d="${path}"/>`
  })
  return (
    `<div class="percents"><svg viewBox="0 0 1000 100" height="70" preserveAspectRatio="none" ` +
    `role="img" aria-label="${escape(label)}">${lines.join('')}</svg>` +
    '<span aria-hidden="true"><b>100 %</b><b>0 %</b></span></div>'
  )
}

const colourOf = (at: number): string => `c${at % nameColours}`

interface PlacedNode {
  readonly x: number
  readonly y: number
}

const boxWidth = 190
const boxHeight = 46
const gapX = 60
const gapY = 18
const loopWidth = 24

/** Draws names in columns. Each name is to the right of the names that its tasks depend on. */
export function graphDrawing({ nodes, edges }: GraphView): string {
  if (edges.length === 0) return ''
  const column = assignDepths(nodes.length, edges)
  const rows = new Map<number, number>()
  const placedNodes: PlacedNode[] = nodes.map((_, node) => {
    const at = column[node] ?? 0
    const row = rows.get(at) ?? 0
    rows.set(at, row + 1)
    return { x: at * (boxWidth + gapX) + 2, y: row * (boxHeight + gapY) + 2 }
  })
  const rightEdge = (Math.max(...column) + 1) * (boxWidth + gapX) - gapX + 4
  const width = rightEdge + (edges.some(({ from, to }) => from === to) ? loopWidth : 0)
  const height = Math.max(...rows.values()) * (boxHeight + gapY) - gapY + 4
  const max = edges.reduce((sum, { count }) => Math.max(sum, count), 1)
  const lines = edges.map(({ from, to, count }) => {
    const [a, b] = [placedNodes[from], placedNodes[to]]
    if (a === undefined || b === undefined) return ''
    const path = from === to ? loopAt(a) : lineBetween(a, b)
    return `<path class="edge" stroke-width="${rounded(1 + (3 * count) / max)}" d="${path}"/>`
  })
  const boxes = nodes.map(({ name, tasks, failed }, node) => {
    const { x, y } = placedNodes[node] ?? { x: 0, y: 0 }
    const failedText = failed > 0 ? `, ${numberText(failed)} failed` : ''
    const counts = `${countText(tasks, 'task')}${failedText}`
    return (
      `<rect class="node" x="${x}" y="${y}" width="${boxWidth}" height="${boxHeight}" rx="6"/>` +
      `<text class="dark" x="${x + 10}" y="${y + 20}">${escape(short(shortName(name)))}</text>` +
      `<text x="${x + 10}" y="${y + 36}">${escape(counts)}</text>`
    )
  })
  return (
    `<div class="scroll" tabindex="0" role="region" aria-label="graph of the names">` +
    `<svg viewBox="0 0 ${width} ${height}" style="width:${width}px;max-width:none" ` +
    `height="${height}" role="img" aria-label="which tasks waited for which">` +
    `${lines.join('')}${boxes.join('')}</svg></div>`
  )
}

function lineBetween(a: PlacedNode, b: PlacedNode): string {
  const [x1, y1] = [a.x + boxWidth, a.y + boxHeight / 2]
  const [x2, y2] = [b.x, b.y + boxHeight / 2]
  const bend = gapX / 2
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
}

function loopAt({ x, y }: PlacedNode): string {
  const [right, top, bottom] = [x + boxWidth, y + boxHeight / 4, y + (3 * boxHeight) / 4]
  const far = right + (4 / 3) * (loopWidth - 6)
  return `M${right} ${top}C${far} ${top} ${far} ${bottom} ${right} ${bottom}`
}

const short = (name: string): string => cutMiddle(name, 24)

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
  const colours = findColours(data)
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

const findColours = ({ names }: ReportData): ReadonlyMap<string, string> =>
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
