/**
 * Measurements over time in limited space, as means over intervals of equal length. If a run needs
 * more intervals than the limit, pairs of intervals are merged. Plain data.
 */

/** The maximum number of intervals. A small chart has about as many columns. */
const maxIntervals = 240

export interface Series {
  /** The number of values per measurement. */
  readonly width: number
  /** The start of the first interval; NaN before the first measurement. */
  start: number
  /** The length of an interval. */
  seconds: number
  counts: Uint32Array
  sums: Float32Array
}

/** The means over one interval; `null` for a value without measurements. */
export interface SeriesPoint {
  readonly time: number
  readonly values: readonly (number | null)[]
}

export const createSeries = (width: number): Series => ({
  width,
  start: Number.NaN,
  seconds: 1,
  counts: new Uint32Array(0),
  sums: new Float32Array(0),
})

/** Adds a measurement. If it is from before the first interval, adds it to the first interval. */
export function addToSeries(
  series: Series,
  time: number,
  values: readonly (number | null)[],
): void {
  if (Number.isNaN(series.start)) series.start = Math.floor(time)
  while (intervalOf(series, time) >= maxIntervals) mergePairs(series)
  const first = intervalOf(series, time) * series.width
  if (series.sums.length < first + series.width) grow(series, first + series.width)
  for (const [at, value] of values.entries()) {
    if (value === null) continue
    series.counts[first + at] = (series.counts[first + at] ?? 0) + 1
    series.sums[first + at] = (series.sums[first + at] ?? 0) + value
  }
}

const intervalOf = ({ start, seconds }: Series, time: number): number =>
  Math.max(0, Math.floor((time - start) / seconds))

function grow(series: Series, length: number): void {
  const max = maxIntervals * series.width
  const size = Math.min(max, Math.max(length, 2 * series.sums.length))
  const [counts, sums] = [new Uint32Array(size), new Float32Array(size)]
  counts.set(series.counts)
  sums.set(series.sums)
  Object.assign(series, { counts, sums })
}

function mergePairs(series: Series): void {
  const { width, counts, sums } = series
  for (let at = 0; at < sums.length; at++) {
    const to = Math.floor(at / width / 2) * width + (at % width)
    if (to === at) continue
    counts[to] = (counts[to] ?? 0) + (counts[at] ?? 0)
    sums[to] = (sums[to] ?? 0) + (sums[at] ?? 0)
    counts[at] = 0
    sums[at] = 0
  }
  series.seconds *= 2
}

/** Returns the means of all intervals. Omits intervals without measurements. */
export function showSeries({ width, start, seconds, counts, sums }: Series): SeriesPoint[] {
  const points: SeriesPoint[] = []
  for (let first = 0; first < sums.length; first += width) {
    const values = Array.from({ length: width }, (_, at) => {
      const count = counts[first + at] ?? 0
      return count === 0 ? null : (sums[first + at] ?? 0) / count
    })
    const time = start + (first / width) * seconds
    if (values.some((value) => value !== null)) points.push({ time, values })
  }
  return points
}

/** Returns the intervals that began before a time. */
export function cutSeries(series: Series, until: number): Series {
  const { start, seconds, width } = series
  const intervals = Number.isNaN(start) ? 0 : Math.max(0, Math.ceil((until - start) / seconds))
  const size = Math.min(series.sums.length, intervals * width)
  return { ...series, counts: series.counts.slice(0, size), sums: series.sums.slice(0, size) }
}
