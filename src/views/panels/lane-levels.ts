/**
 * Coarser levels of the lanes, for zooming out: a cell of level 1 sums up 16 consecutive segments
 * of a lane, a cell of level 2 sums up 256, and so on. 32 bytes per cell.
 */

import {
  addToValue,
  blockRows,
  type Column,
  createColumn,
  dropRows,
  setValue,
  valueAt,
} from '../columns.ts'

export interface LaneLevel {
  size: number
  /** The first kept cell; earlier cells exist only in coarser levels. */
  first: number
  /** The number of segments in a full cell. */
  readonly capacity: number
  readonly lane: Column
  readonly start: Column
  readonly end: Column
  readonly busy: Column
  readonly segments: Column
  readonly failed: Column
  /** For each lane, the cell that is not full yet, plus 1. */
  readonly open: Column
}

/** Segments of one lane that are drawn together. */
export interface LaneCell {
  readonly lane: number
  readonly start: number
  readonly end: number
  readonly busySeconds: number
  readonly segments: number
  readonly failed: number
}

export interface EndedSegment {
  readonly lane: number
  readonly start: number
  readonly end: number
  readonly isFailed: boolean
}

const perCell = 16
const levelCount = 6
/** The maximum number of cells per level; the oldest cells are dropped. */
const maxCells = 1_000_000

export const createLevels = (): LaneLevel[] =>
  Array.from({ length: levelCount }, (_, at) => ({
    size: 0,
    first: 0,
    capacity: perCell ** (at + 1),
    lane: createColumn('u32'),
    start: createColumn('f64'),
    end: createColumn('f64'),
    busy: createColumn('f32'),
    segments: createColumn('u32'),
    failed: createColumn('u32'),
    open: createColumn('u32'),
  }))

export function addToLevels(levels: readonly LaneLevel[], segment: EndedSegment): void {
  for (const level of levels) addToLevel(level, segment)
}

function addToLevel(level: LaneLevel, segment: EndedSegment): void {
  const { lane, start, end, isFailed } = segment
  const open = valueAt(level.open, lane) - 1
  // The open cell of a lane may have been dropped if the lane was idle for long.
  const isNew = open < level.first
  const cell = isNew ? addCell(level, lane) : open
  setValue(level.start, cell, isNew ? start : Math.min(start, valueAt(level.start, cell)))
  setValue(level.end, cell, isNew ? end : Math.max(end, valueAt(level.end, cell)))
  addToValue(level.busy, cell, end - start)
  addToValue(level.segments, cell, 1)
  if (isFailed) addToValue(level.failed, cell, 1)
  const isFull = valueAt(level.segments, cell) === level.capacity
  if (isFull || isNew) setValue(level.open, lane, isFull ? 0 : cell + 1)
}

function addCell(level: LaneLevel, lane: number): number {
  const cell = level.size++
  setValue(level.lane, cell, lane)
  if (level.size - level.first > maxCells) dropOldest(level)
  return cell
}

function dropOldest(level: LaneLevel): void {
  const { lane, start, end, busy, segments, failed } = level
  level.first += blockRows
  for (const column of [lane, start, end, busy, segments, failed]) dropRows(column, level.first)
}

/** The cells of a level that overlap the range; `null` if there are more than `limit`. */
export function cellsIn(
  level: LaneLevel,
  from: number,
  to: number,
  limit: number,
): LaneCell[] | null {
  const found: LaneCell[] = []
  for (let cell = level.first; cell < level.size; cell++) {
    const start = valueAt(level.start, cell)
    const end = valueAt(level.end, cell)
    if (start > to || end < from) continue
    if (found.length === limit) return null
    found.push({
      lane: valueAt(level.lane, cell),
      start,
      end,
      busySeconds: valueAt(level.busy, cell),
      segments: valueAt(level.segments, cell),
      failed: valueAt(level.failed, cell),
    })
  }
  return found
}
