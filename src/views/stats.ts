/** Exact statistics of durations. */

export interface DurationStats {
  readonly mean: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/** Quantiles by the nearest rank; zeros for no data. Does not change its input. */
export function durationStats(values: readonly number[]): DurationStats {
  if (values.length === 0) return { mean: 0, p50: 0, p95: 0, p99: 0, max: 0 }
  const sorted = Float64Array.from(values).toSorted()
  const rank = (quantile: number): number =>
    sorted[Math.max(0, Math.ceil(quantile * sorted.length) - 1)] ?? 0
  const sum = sorted.reduce((total, value) => total + value, 0)
  return {
    mean: sum / sorted.length,
    p50: rank(0.5),
    p95: rank(0.95),
    p99: rank(0.99),
    max: rank(1),
  }
}
