/** Distributions as OpenTelemetry histograms, for metric readers. */

import { type HrTime, ValueType } from '@opentelemetry/api'
import {
  AggregationTemporality,
  DataPointType,
  type Histogram,
  type MetricData,
} from '@opentelemetry/sdk-metrics'
import type { Distribution } from '../../events/measurement.ts'

export interface Period {
  readonly startTime: HrTime
  readonly endTime: HrTime
}

/** One per reader: for delta temporality it remembers what the reader has received. */
export class DistributionSeries {
  readonly #seen = new Map<string, Histogram>()

  collect(
    distributions: Iterable<Distribution>,
    period: Period,
    temporality: AggregationTemporality,
  ): MetricData[] {
    const isDelta = temporality === AggregationTemporality.DELTA
    const metrics = new Map<string, ReturnType<typeof emptyMetric>>()
    for (const series of distributions) {
      const value = isDelta ? this.#sinceSeen(series) : toHistogram(series)
      if (value.count === 0) continue
      const { name } = series.instrument
      const metric = metrics.get(name) ?? emptyMetric(series, temporality)
      metrics.set(name, metric)
      metric.dataPoints.push({ ...period, attributes: { ...series.labels }, value })
    }
    return [...metrics.values()]
  }

  #sinceSeen(series: Distribution): Histogram {
    const now = toHistogram(series)
    const key = `${series.instrument.name} ${JSON.stringify(series.labels)}`
    const seen = this.#seen.get(key)
    this.#seen.set(key, now)
    if (seen === undefined) return now
    const { boundaries, counts } = now.buckets
    const { min: _min, max: _max, ...rest } = now
    return {
      ...rest,
      sum: (now.sum ?? 0) - (seen.sum ?? 0),
      count: now.count - seen.count,
      buckets: {
        boundaries,
        counts: counts.map((count, at) => count - (seen.buckets.counts[at] ?? 0)),
      },
    }
  }
}

function emptyMetric({ instrument }: Distribution, temporality: AggregationTemporality) {
  const { name, unit, description } = instrument
  const dataPoints: { startTime: HrTime; endTime: HrTime; attributes: {}; value: Histogram }[] = []
  return {
    descriptor: { name, unit, description, valueType: ValueType.DOUBLE },
    aggregationTemporality: temporality,
    dataPointType: DataPointType.HISTOGRAM as const,
    dataPoints,
  }
}

function toHistogram({ instrument, counts, sum, count, min, max }: Distribution): Histogram {
  const buckets = { boundaries: [...instrument.boundaries], counts: [...counts] }
  return { buckets, sum, count, min, max }
}
