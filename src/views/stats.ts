/** Exact statistics of durations. */

/** All values are in seconds. */
export interface DurationStats {
  readonly mean: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/**
 * Computes statistics without changing `values`. Quantiles are values of the nearest rank. Without
 * data, all numbers are 0.
 */
export const durationStats = (values: readonly number[] | Float64Array): DurationStats =>
  statsInPlace(Float64Array.from(values))

/** Like `durationStats`, but in linear time. Reorders `values`. */
export function statsInPlace(values: Float64Array): DurationStats {
  if (values.length === 0) return { mean: 0, p50: 0, p95: 0, p99: 0, max: 0 }
  const last = values.length - 1
  let [sum, max] = [0, -Infinity]
  for (const value of values) {
    sum += value
    if (value > max) max = value
  }
  // After a selection, all larger values are behind the selected index, so the next selection
  // starts there.
  let from = 0
  const readQuantile = (quantile: number): number => {
    const at = Math.min(last, Math.max(0, Math.ceil(quantile * values.length) - 1))
    select(values, from, last, at)
    from = at
    return values[at] ?? 0
  }
  return {
    mean: sum / values.length,
    p50: readQuantile(0.5),
    p95: readQuantile(0.95),
    p99: readQuantile(0.99),
    max,
  }
}

/** Like `statsInPlace`; `null` without data. */
export const statsOrNull = (values: Float64Array | undefined): DurationStats | null =>
  values === undefined || values.length === 0 ? null : statsInPlace(values)

/** Quickselect: moves the value of this rank to its index, and all larger values behind it. */
export function select(values: Float64Array, from: number, to: number, rank: number): void {
  let [low, high] = [from, to]
  while (low < high) {
    const pivot = values[(low + high) >>> 1] ?? 0
    let [left, right] = [low, high]
    while (left <= right) {
      while ((values[left] ?? 0) < pivot) left++
      while ((values[right] ?? 0) > pivot) right--
      if (left > right) break
      const value = values[left] ?? 0
      values[left++] = values[right] ?? 0
      values[right--] = value
    }
    if (rank <= right) high = right
    else if (rank >= left) low = left
    else return
  }
}

/**
 * The distribution of durations in constant space: how many are in each of 200 logarithmic
 * intervals, without the empty ones at the end. A quantile is exact to 5 %.
 */
export type LogBuckets = number[]

const minSeconds = 1e-5
const growth = 1.1
/** The last interval begins at about half an hour. */
const maxBuckets = 200

export function addToBuckets(buckets: LogBuckets, seconds: number): void {
  const power = Math.floor(Math.log(Math.max(seconds, minSeconds) / minSeconds) / Math.log(growth))
  const at = Math.min(power, maxBuckets - 1)
  while (buckets.length <= at) buckets.push(0)
  buckets[at] = (buckets[at] ?? 0) + 1
}

/** Returns the middle of the interval that contains the quantile; `null` without durations. */
export function quantileOf(buckets: LogBuckets, quantile: number): number | null {
  const total = buckets.reduce((sum, count) => sum + count, 0)
  let seen = 0
  for (const [at, count] of buckets.entries()) {
    seen += count
    if (count > 0 && seen >= quantile * total) return minSeconds * growth ** (at + 0.5)
  }
  return null
}
