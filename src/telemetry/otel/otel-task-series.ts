/** The points of one task instrument, with one series per task. */

import type { Attributes, HrTime } from '@opentelemetry/api'
import type { DataPoint, Histogram, InstrumentType, MetricData } from '@opentelemetry/sdk-metrics'
import type { TaskRow } from '../metrics/task-row.ts'

type AnyPoint = DataPoint<number> | DataPoint<Histogram>

/** The points of one instrument during a collection. */
export class TaskSeries {
  readonly type: InstrumentType
  readonly #seen: Map<string, number> | null
  readonly #perTask: (record: TaskRow) => number | null
  readonly #toMetric: (points: AnyPoint[]) => MetricData
  readonly #toHistogram: ((record: TaskRow) => Histogram) | undefined
  #points: AnyPoint[] = []
  #startTime: HrTime = [0, 0]
  #endTime: HrTime = [0, 0]

  constructor(
    type: InstrumentType,
    isDelta: boolean,
    perTask: (record: TaskRow) => number | null,
    toMetric: (points: AnyPoint[]) => MetricData,
    histogramOf?: (record: TaskRow) => Histogram,
  ) {
    this.type = type
    this.#seen = isDelta ? new Map() : null
    this.#perTask = perTask
    this.#toMetric = toMetric
    this.#toHistogram = histogramOf
  }

  begin(startTime: HrTime, endTime: HrTime): void {
    this.#points = []
    this.#startTime = startTime
    this.#endTime = endTime
  }

  add(record: TaskRow, attributes: Attributes): void {
    let value = this.#perTask(record)
    if (value === null) return
    if (this.#seen !== null) {
      const seen = this.#seen.get(record.uid) ?? 0
      this.#seen.set(record.uid, value)
      value -= seen
      if (value === 0) return
    }
    const times = { startTime: this.#startTime, endTime: this.#endTime }
    if (this.#toHistogram === undefined) this.#points.push({ ...times, attributes, value })
    else this.#points.push({ ...times, attributes, value: this.#toHistogram(record) })
  }

  finish(): MetricData {
    const points = this.#points
    this.#points = []
    return this.#toMetric(points)
  }
}

/** The bucket counts of a histogram with a single value, indexed by the value's bucket. */
const oneHot = new Map<number, number[][]>()

function countsOfOne(buckets: number, hot: number): number[] {
  let all = oneHot.get(buckets)
  if (all === undefined) {
    all = Array.from({ length: buckets }, (_, one) =>
      Array.from({ length: buckets }, (__, at) => Number(at === one)),
    )
    oneHot.set(buckets, all)
  }
  return all[hot] ?? []
}

/** A task has one value, so one bucket of its histogram has a count of 1. */
export function toHistogramOfOne(bounds: readonly number[], seconds: number): Histogram {
  const above = bounds.findIndex((bound) => seconds <= bound)
  const counts = countsOfOne(bounds.length + 1, above === -1 ? bounds.length : above)
  const boundaries = bounds as number[]
  return { buckets: { boundaries, counts }, sum: seconds, count: 1, min: seconds, max: seconds }
}
