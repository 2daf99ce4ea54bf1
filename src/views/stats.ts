/** Exact statistics of durations. */

/** All values are in seconds. */
export interface DurationStats {
  readonly mean: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/** Quantiles by nearest rank; zeros for no data. Does not change `values`. */
export const durationStats = (values: readonly number[] | Float64Array): DurationStats =>
  statsInPlace(Float64Array.from(values))

/** Like `durationStats`, in linear time; reorders `values`. */
export function statsInPlace(values: Float64Array): DurationStats {
  if (values.length === 0) return { mean: 0, p50: 0, p95: 0, p99: 0, max: 0 }
  const last = values.length - 1
  let [sum, max] = [0, -Infinity]
  for (const value of values) {
    sum += value
    if (value > max) max = value
  }
  // After a selection, all larger values are behind its rank, so the next one starts there.
  let from = 0
  const rank = (quantile: number): number => {
    const at = Math.min(last, Math.max(0, Math.ceil(quantile * values.length) - 1))
    select(values, from, last, at)
    from = at
    return values[at] ?? 0
  }
  return { mean: sum / values.length, p50: rank(0.5), p95: rank(0.95), p99: rank(0.99), max }
}

/** Quickselect: moves the value of this rank to its index, and larger values behind it. */
function select(values: Float64Array, from: number, to: number, rank: number): void {
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
