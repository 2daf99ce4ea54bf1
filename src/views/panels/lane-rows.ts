/** Places the attempts of workers in rows, for the report and the dashboard. Pure. */

import type { LaneId, LanesView } from './lanes.ts'

const { compare } = new Intl.Collator('en', { numeric: true })

/** Compares the ids of workers, so that w10 comes after w9. */
export const compareWorkers = (a: string, b: string): number => compare(a, b)

/** Whether a lane contains closures or prompts, which use no slots. */
export const isUnsizedLane = ({ id, backend }: LaneId, sized: ReadonlySet<string>): boolean =>
  !sized.has(backend) || id.endsWith('/main')

/** The lanes (one per worker), and the single or combined attempts to place in rows. */
interface PlacedLanes extends Pick<LanesView, 'level' | 'segments' | 'cells'> {
  readonly lanes: readonly LaneId[]
}

export interface LaneRows {
  /** The worker of each row, with a number if the worker has several rows. */
  readonly labels: readonly string[]
  /** The row of each segment; -1 if the segment is not shown. */
  readonly rowOfSegment: readonly number[]
  /** The row of each worker's cells if segments are combined; -1 if the worker is not shown. */
  readonly rowOfLane: readonly number[]
  readonly shownLanes: number
  /** Whether closures or prompts are missing, because more than `maxUnsizedRows` ran at a time. */
  readonly isUnsizedCut: boolean
}

/**
 * Assigns segments to rows. A worker that runs several tasks at a time, such as a launcher of
 * programs, has several rows. If there are too many rows, the busiest are shown, in the order of
 * their workers. Closures and prompts, which use no slots, come last and get few rows. `sized` are
 * the backends with slots.
 */
export function placeInRows(
  { lanes, level, segments, cells }: PlacedLanes,
  sized: ReadonlySet<string>,
  maxRows: number,
): LaneRows {
  const ends: number[][] = lanes.map(() => [-Infinity])
  const busy: number[][] = lanes.map(() => [0])
  if (level > 0) for (const cell of cells) add(busy[cell.lane], 0, cell.busySeconds)
  const rowInLane: number[] = []
  const order = segments.map((_, at) => at)
  order.sort((a, b) => (segments[a]?.start ?? 0) - (segments[b]?.start ?? 0))
  for (const at of level === 0 ? order : []) {
    const segment = segments[at]
    const endsOfLane = ends[segment?.lane ?? -1]
    if (segment === undefined || endsOfLane === undefined) continue
    const free = endsOfLane.findIndex((end) => end <= segment.start)
    const row = free === -1 ? endsOfLane.length : free
    endsOfLane[row] = segment.end
    rowInLane[at] = row
    add(busy[segment.lane], row, segment.end - segment.start)
  }
  const isUnsized = lanes.map((lane) => isUnsizedLane(lane, sized))
  const numbers = numberRows(busy, { lanes, isUnsized, maxRows })
  const labels: string[] = []
  for (const [lane, { id }] of lanes.entries()) {
    const shown = (numbers[lane] ?? []).filter((row) => row !== -1)
    for (const [at, row] of shown.entries()) {
      labels[row] = shown.length === 1 ? id : `${id} #${at + 1}`
    }
  }
  const rowOfSegment = segments.map(({ lane }, at) => numbers[lane]?.[rowInLane[at] ?? 0] ?? -1)
  const rowOfLane = numbers.map(([row = -1]) => row)
  const shownLanes = numbers.filter((rows) => rows.some((row) => row !== -1)).length
  const isUnsizedCut = busy.some((rows, lane) => {
    const isShown = numbers[lane]?.[0] !== -1
    return isShown && isUnsized[lane] === true && rows.length > maxUnsizedRows
  })
  return { labels, rowOfSegment, rowOfLane, shownLanes, isUnsizedCut }
}

function add(sums: number[] | undefined, at: number, seconds: number): void {
  if (sums !== undefined) sums[at] = (sums[at] ?? 0) + seconds
}

/**
 * Additional rows with less than this share of the busiest row's time are omitted, because they
 * would look empty.
 */
const emptyShare = 0.001
/** The maximum number of rows for concurrent closures or prompts. More would hide the workers. */
export const maxUnsizedRows = 4

interface RowLimits {
  readonly lanes: readonly LaneId[]
  readonly isUnsized: readonly boolean[]
  readonly maxRows: number
}

/**
 * Returns the position of each row of each lane, or -1 if the row is not shown. Equally busy rows
 * keep their order.
 */
function numberRows(
  busy: readonly (readonly number[])[],
  { lanes, isUnsized, maxRows }: RowLimits,
): number[][] {
  const max = busy.flat().reduce((longest, seconds) => Math.max(longest, seconds), 0)
  const all = busy
    .flatMap((rows, lane) => rows.map((seconds, row) => ({ lane, row, seconds })))
    .filter(({ row, seconds }) => row === 0 || seconds >= emptyShare * max)
    .filter(({ lane, row }) => isUnsized[lane] !== true || row < maxUnsizedRows)
  const shown = all.toSorted((a, b) => b.seconds - a.seconds).slice(0, maxRows)
  const rankOf = ({ lane }: { lane: number }): number => (isUnsized[lane] === true ? 1 : 0)
  const idOf = ({ lane }: { lane: number }): string => lanes[lane]?.id ?? ''
  shown.sort(
    (a, b) =>
      rankOf(a) - rankOf(b) || compareWorkers(idOf(a), idOf(b)) || a.lane - b.lane || a.row - b.row,
  )
  const numbers = busy.map((rows) => rows.map(() => -1))
  for (const [at, { lane, row }] of shown.entries()) {
    const ofLane = numbers[lane]
    if (ofLane !== undefined) ofLane[row] = at
  }
  return numbers
}
