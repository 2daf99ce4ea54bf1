/**
 * The stream: the attempts of each worker over time. Few attempts are single blocks; more are
 * combined into cells of equal length.
 */

import {
  compareWorkers,
  isUnsizedLane,
  maxUnsizedRows,
  placeInRows,
} from '../../../views/panels/lane-rows.ts'
import { isFailedOutcome, type LaneId, listLanes } from '../../../views/panels/lanes.ts'
import { type SegmentView, segmentAt } from '../../../views/panels/lanes.ts'
import type { Filter, StreamCell, StreamView, TimeRange } from '../../protocol.ts'
import type { RunMoment } from '../run-moment.ts'
import { createAttemptFilter } from '../selection.ts'
import { describeNotShown, rounded, shownText } from '../shown-texts.ts'
import { toBlocks } from './blocks.ts'

export interface StreamQuery {
  readonly filter: Filter
  readonly range: TimeRange
  /** The number of cells per row. */
  readonly cells: number
}

const maxRows = 64
/** An answer has at most half a megabyte. A cell takes at most 122 bytes, a block about 300. */
const maxBlocks = 1200
const maxCells = 4000
/** Blocks with long names take more bytes. If they do not fit, cells are shown. */
const maxBlockBytes = 450_000

/** The shown part of the time axis, the attempts in it, and the lanes (workers) of the run. */
export interface StreamPart {
  readonly from: number
  readonly to: number
  readonly lanes: readonly LaneId[]
  /** The attempts in the range, as rows of the columns; the first ones if there are too many. */
  readonly found: readonly number[]
  readonly isCut: boolean
}

export function showStream(moment: RunMoment, { filter, range, cells }: StreamQuery): StreamView {
  const part = findPart(moment, filter, range)
  const single = part.isCut ? null : showBlocks(moment, part)
  const isLarge = single === null || bytesOf(single.blocks) > maxBlockBytes
  const shown = isLarge ? showCells(moment, part, filter, cells) : single
  return { ...shown, range: { from: part.from, to: part.to } }
}

const bytesOf = (blocks: StreamView['blocks']): number => Buffer.byteLength(JSON.stringify(blocks))

type Shown = Omit<StreamView, 'range'>

function findPart(moment: RunMoment, filter: Filter, range: TimeRange): StreamPart {
  const { columns, pass, now, start } = moment
  const { lanes } = pass.states
  const [from, to] = [range.from ?? start, range.to ?? Math.max(now, start + 1e-3)]
  const isSelected = createAttemptFilter(moment, filter)
  const found: number[] = []
  const { size, start: starts, end: ends } = columns.attempts
  for (let at = 0; at < size && found.length <= maxBlocks; at++) {
    if ((starts[at] ?? 0) > to || (ends[at] ?? 0) < from || isSelected?.(at) === false) continue
    found.push(at)
  }
  return { from, to, lanes: listLanes(lanes), found, isCut: found.length > maxBlocks }
}

const sizedBackends = ({ pass }: RunMoment): ReadonlySet<string> =>
  new Set(pass.states.bounds.nodes.map(({ backend }) => backend))

const toRow = (label: string, lane: LaneId | undefined): StreamView['rows'][number] => ({
  label: shownText(label),
  nodeId: shownText(lane?.nodeId ?? ''),
  backend: shownText(lane?.backend ?? ''),
})

function showBlocks(moment: RunMoment, { lanes, found }: StreamPart): Shown {
  const { pass, now } = moment
  const segments = found.map((at): SegmentView => segmentAt(pass.states.lanes, at, now))
  const view = { lanes, level: 0, segments, cells: [] }
  const { labels, rowOfSegment, shownLanes, isUnsizedCut } = placeInRows(
    view,
    sizedBackends(moment),
    maxRows,
  )
  const laneOfRow: number[] = []
  for (const [at, row] of rowOfSegment.entries()) {
    if (row !== -1) laneOfRow[row] = segments[at]?.lane ?? 0
  }
  const usedRows = labels.flatMap((label, row) =>
    laneOfRow[row] === undefined ? [] : [{ label, row }],
  )
  const numberOf = new Map(usedRows.map(({ row }, at) => [row, at]))
  const rows = usedRows.map(({ label, row }) => toRow(label, lanes[laneOfRow[row] ?? -1]))
  const blocks = toBlocks(
    moment,
    segments.map((segment, at) => ({ segment, row: numberOf.get(rowOfSegment[at] ?? -1) ?? -1 })),
  )
  const inRange = new Set(segments.map(({ lane }) => lane)).size
  const attempts = segments.length - blocks.length
  return {
    rows,
    blocks,
    cells: [],
    notShown: describeMissing(inRange - Math.min(inRange, shownLanes), attempts, isUnsizedCut),
  }
}

function describeMissing(workers: number, attempts: number, isUnsizedCut = false): string {
  return [
    describeNotShown([workers, 'worker'], [attempts, 'attempt']),
    workers > 0 ? 'The busiest workers are shown.' : '',
    isUnsizedCut ? `At most ${maxUnsizedRows} rows per worker show closures and prompts.` : '',
  ]
    .filter((part) => part !== '')
    .join(' ')
}

interface LaneSums {
  readonly busy: Float64Array
  readonly attempts: Uint32Array
}

function showCells(moment: RunMoment, part: StreamPart, filter: Filter, columns: number): Shown {
  const { lanes } = part
  const isSelected = createAttemptFilter(moment, filter)
  const { busy, attempts } = sumByLane(moment, part, isSelected)
  const usedLanes = lanes.flatMap((_, lane) => ((attempts[lane] ?? 0) > 0 ? [lane] : []))
  const shown = usedLanes
    .toSorted((a, b) => (busy[b] ?? 0) - (busy[a] ?? 0))
    .slice(0, maxRows)
    .toSorted(createLaneOrder(moment, lanes))
  const rowOf = new Int32Array(lanes.length).fill(-1)
  for (const [row, lane] of shown.entries()) rowOf[lane] = row
  const perRow = Math.max(1, Math.min(columns, Math.floor(maxCells / Math.max(1, shown.length))))
  const shownLanes = new Set(shown)
  const hidden = usedLanes.filter((lane) => !shownLanes.has(lane))
  const hiddenAttempts = hidden.reduce((sum, lane) => sum + (attempts[lane] ?? 0), 0)
  return {
    rows: shown.map((lane) => toRow(lanes[lane]?.id ?? '', lanes[lane])),
    blocks: [],
    cells: countCells(moment, part, { isSelected, rowOf, rows: shown.length, perRow }),
    notShown: describeMissing(hidden.length, hiddenAttempts),
  }
}

/** Compares lanes. The order is the same as that of rows with single attempts. */
function createLaneOrder(
  moment: RunMoment,
  lanes: readonly LaneId[],
): (a: number, b: number) => number {
  const sized = sizedBackends(moment)
  const rankOf = (lane: LaneId | undefined): number =>
    lane !== undefined && isUnsizedLane(lane, sized) ? 1 : 0
  return (a, b) =>
    rankOf(lanes[a]) - rankOf(lanes[b]) ||
    compareWorkers(lanes[a]?.id ?? '', lanes[b]?.id ?? '') ||
    a - b
}

function sumByLane(
  { columns, now }: RunMoment,
  { from, to, lanes }: StreamPart,
  isSelected: ((at: number) => boolean) | null,
): LaneSums {
  const { size, start, end, lane } = columns.attempts
  const busy = new Float64Array(lanes.length)
  const attempts = new Uint32Array(lanes.length)
  for (let at = 0; at < size; at++) {
    const begin = Math.max(from, start[at] ?? 0)
    const until = Math.min(to, now, end[at] ?? 0)
    if (begin > to || (end[at] ?? 0) < from || isSelected?.(at) === false) continue
    const laneNumber = lane[at] ?? 0
    busy[laneNumber] = (busy[laneNumber] ?? 0) + Math.max(0, until - begin)
    attempts[laneNumber] = (attempts[laneNumber] ?? 0) + 1
  }
  return { busy, attempts }
}

interface CellQuery {
  readonly isSelected: ((at: number) => boolean) | null
  /** The row of each lane (worker); -1 if it is not shown. */
  readonly rowOf: Int32Array
  readonly rows: number
  readonly perRow: number
}

/** An attempt counts in the cell in which it began, and its time in all cells that it covers. */
function countCells(
  { columns, now }: RunMoment,
  { from, to }: StreamPart,
  { isSelected, rowOf, rows, perRow }: CellQuery,
): StreamCell[] {
  const { size, start, end, lane, outcome } = columns.attempts
  const width = (to - from) / perRow
  // All sums have the same type, because a function that adds to several types is much slower.
  const create = (): Float64Array => new Float64Array(rows * (perRow + 1))
  const [busy, attempts, failed] = [create(), create(), create()]
  // The change, from cell to cell, of the number of attempts that cover a whole cell. An attempt of
  // any length changes only two numbers.
  const coverChanges = create()
  const add = (sums: Float64Array, at: number, value: number): void => {
    sums[at] = (sums[at] ?? 0) + value
  }
  for (let at = 0; at < size; at++) {
    const row = rowOf[lane[at] ?? 0] ?? -1
    const [began, ended] = [start[at] ?? 0, Math.min(now, end[at] ?? 0)]
    if (row === -1 || began > to || (end[at] ?? 0) < from || isSelected?.(at) === false) continue
    const [first, last] = [Math.max(from, began), Math.max(from, Math.min(to, ended))]
    const cell = Math.min(perRow - 1, Math.floor((first - from) / width))
    const lastCell = Math.min(perRow - 1, Math.floor((last - from) / width))
    const index = row * (perRow + 1) + cell
    add(attempts, index, 1)
    if (isFailedOutcome(outcome[at] ?? 0)) add(failed, index, 1)
    if (lastCell <= cell) {
      add(busy, index, Math.max(0, last - first))
      continue
    }
    add(busy, index, from + (cell + 1) * width - first)
    add(busy, index + lastCell - cell, last - (from + lastCell * width))
    add(coverChanges, index + 1, 1)
    add(coverChanges, index + lastCell - cell, -1)
  }
  const cells: StreamCell[] = []
  for (let row = 0; row < rows; row++) {
    let covering = 0
    for (let cell = 0; cell < perRow; cell++) {
      const at = row * (perRow + 1) + cell
      covering += coverChanges[at] ?? 0
      const busySeconds = (busy[at] ?? 0) + covering * width
      if (busySeconds <= 0 && attempts[at] === 0) continue
      const begin = from + cell * width
      cells.push({
        row,
        start: rounded(begin),
        end: rounded(begin + width),
        busySeconds: rounded(busySeconds),
        attempts: attempts[at] ?? 0,
        failed: failed[at] ?? 0,
      })
    }
  }
  return cells
}
