/**
 * The instruments for OpenTelemetry's metric readers. They are produced from telemetry's tables, so
 * the SDK's limit on the number of series does not drop tasks.
 */

import { type Attributes, type HrTime, ValueType } from '@opentelemetry/api'
import type { Resource } from '@opentelemetry/resources'
import {
  AggregationTemporality,
  AggregationType,
  type CollectionResult,
  type DataPoint,
  DataPointType,
  type Histogram,
  type IMetricReader,
  InstrumentType,
  type MetricData,
  type MetricProducer,
} from '@opentelemetry/sdk-metrics'
import type { Distribution } from '../../events/measurement.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { Steps, StepScheduler } from '../../runtime/turn-budget.ts'
import {
  type InstrumentInfo,
  type MetricSource,
  nodeInstruments,
  type TaskHistogram,
  taskHistograms,
  type TaskInstrument,
  taskInstruments,
} from '../metrics/metrics.ts'
import type { TaskGroup, TaskGroups } from '../metrics/task-groups.ts'
import { instrumentationScope, toHrTime } from './otel.ts'
import type { TaskRow } from '../metrics/task-row.ts'

interface ProducerParts {
  readonly reader: IMetricReader
  readonly resource: Resource
  readonly source: MetricSource
  /** The groups of tasks; `null` if each task has a separate series. */
  readonly groups: TaskGroups | null
  readonly scheduler: StepScheduler
  readonly clock: Clock
}

/** The attached metric readers: bound at start, and shut down at stop within a deadline. */
export class MetricReaders {
  readonly #readers: readonly IMetricReader[]
  readonly #parts: Omit<ProducerParts, 'reader'> & { readonly log: Log }

  constructor(
    readers: readonly IMetricReader[],
    parts: Omit<ProducerParts, 'reader'> & { readonly log: Log },
  ) {
    this.#readers = readers
    this.#parts = parts
    readers.forEach((reader, at) => {
      try {
        reader.setMetricProducer(new TableMetricProducer({ ...parts, reader }))
      } catch (error) {
        throw new ValueError(`metricReaders[${at}] cannot be used: ${messageOf(error)}`, {
          field: `metricReaders[${at}]`,
          expected: 'a reader that is not bound to another provider',
          cause: error,
        })
      }
    })
  }

  async close(deadlineMs: number): Promise<void> {
    await Promise.all(this.#readers.map((reader) => this.#closeOne(reader, deadlineMs)))
  }

  async #closeOne(reader: IMetricReader, deadlineMs: number): Promise<void> {
    const { clock, log } = this.#parts
    // A flush is not needed: a shutdown collects and exports one last time by itself.
    const shutDown = async (): Promise<void> => reader.shutdown()
    await boundedWait(clock, deadlineMs, shutDown()).catch((error: unknown) =>
      log.warn('MetricReaderError', `a metric reader did not shut down: ${messageOf(error)}`),
    )
  }
}

/** The number of tasks processed between two checks of the clock. */
const tasksPerStep = 100

/** One instance per reader: for delta temporality, it remembers what the reader has received. */
class TableMetricProducer implements MetricProducer {
  readonly #parts: ProducerParts
  readonly #startTime: HrTime
  readonly #series: TaskSeries[]
  /** For delta temporality: the last values that the reader received. */
  readonly #reportedLevels = new Map<string, number>()
  readonly #reportedHistograms = new Map<string, Histogram>()
  #lastCollected: HrTime
  #collecting: Promise<unknown> = Promise.resolve()

  constructor(parts: ProducerParts) {
    this.#parts = parts
    this.#startTime = toHrTime(parts.clock.now())
    this.#lastCollected = this.#startTime
    this.#series = [
      ...taskInstruments.map((one) => this.#sumSeries(one)),
      ...taskHistograms.map((one) => this.#histogramSeries(one)),
    ]
  }

  /** Collections run one at a time: each takes several turns and writes to the shared series. */
  collect(): Promise<CollectionResult> {
    const collected = this.#collecting.then(() => this.#collect())
    this.#collecting = collected.catch(() => {})
    return collected
  }

  async #collect(): Promise<CollectionResult> {
    const { resource, clock, groups, scheduler } = this.#parts
    const endTime = toHrTime(clock.now())
    const ofTasks =
      groups === null
        ? await scheduler.run(this.#metricsByTask(endTime))
        : this.#metricsByGroup(await groups.collect(), endTime)
    const metrics = [
      ...ofTasks,
      ...this.#nodeMetrics(endTime),
      ...this.#histograms(this.#parts.source.measured.list(), endTime),
    ]
    this.#lastCollected = endTime
    return {
      resourceMetrics: { resource, scopeMetrics: [{ scope: instrumentationScope, metrics }] },
      errors: [],
    }
  }

  *#metricsByTask(endTime: HrTime): Steps<MetricData[]> {
    const { tasks, sessionId } = this.#parts.source
    const series = this.#series.filter(({ type }) => !this.#isDropped(type))
    for (const one of series) one.begin(this.#startTimeOf(one.type), endTime)
    let count = 0
    for (const record of tasks.records()) {
      const labels = record.labelsIn(sessionId)
      for (const one of series) one.add(record, labels)
      if (++count % tasksPerStep === 0) yield
    }
    return series.map((one) => one.finish())
  }

  #metricsByGroup(groups: readonly TaskGroup[], endTime: HrTime): MetricData[] {
    const sums = taskInstruments.map((instrument, at) => {
      const type = sumTypeOf(instrument)
      return this.#isDropped(type)
        ? []
        : this.#sum(instrument, ValueType.INT, endTime, groups, ({ labels, sums: values }) => ({
            attributes: labels,
            value: values[at] ?? 0,
          }))
    })
    const distributions = groups.flatMap((group) => group.distributions)
    return [...sums.flat(), ...this.#histograms(distributions, endTime)]
  }

  #sumSeries(instrument: TaskInstrument): TaskSeries {
    const type = sumTypeOf(instrument)
    return new TaskSeries(type, this.#isDelta(type), instrument.perTask, (points) => ({
      descriptor: { ...descriptorOf(instrument), valueType: ValueType.INT },
      aggregationTemporality: this.#temporality(type),
      dataPointType: DataPointType.SUM,
      dataPoints: points as DataPoint<number>[],
      isMonotonic: instrument.kind === 'counter',
    }))
  }

  #histogramSeries(instrument: TaskHistogram): TaskSeries {
    const type = InstrumentType.HISTOGRAM
    const { perTask } = instrument
    return new TaskSeries(
      type,
      this.#isDelta(type),
      (record) => (perTask(record) === null ? null : 1),
      (points) => ({
        descriptor: { ...descriptorOf(instrument), valueType: ValueType.DOUBLE },
        aggregationTemporality: this.#temporality(type),
        dataPointType: DataPointType.HISTOGRAM,
        dataPoints: points as DataPoint<Histogram>[],
      }),
      (record) => toSingleHistogram(instrument.boundaries, perTask(record) ?? 0),
    )
  }

  #nodeMetrics(endTime: HrTime): MetricData[] {
    const { nodes, sessionId } = this.#parts.source
    if (this.#isDropped(InstrumentType.UP_DOWN_COUNTER)) return []
    return nodeInstruments.flatMap((instrument) =>
      this.#sum(instrument, ValueType.DOUBLE, endTime, nodes.nodes.values(), (node) => {
        const value = instrument.perNode(node)
        const { backend, nodeId: node_id } = node
        const attributes = { session_id: sessionId, backend, node_id }
        return value === null ? null : { attributes, value }
      }),
    )
  }

  #sum<T>(
    instrument: InstrumentInfo & { readonly kind: 'counter' | 'updowncounter' },
    valueType: ValueType,
    endTime: HrTime,
    items: Iterable<T>,
    toPoint: (item: T) => Pick<DataPoint<number>, 'attributes' | 'value'> | null,
  ): MetricData[] {
    const type = sumTypeOf(instrument)
    const dataPoints: DataPoint<number>[] = []
    for (const item of items) {
      const point = toPoint(item)
      if (point === null) continue
      const { attributes, value: level } = point
      const key = `${instrument.name} ${JSON.stringify(attributes)}`
      const value = this.#isDelta(type) ? this.#toDelta(key, level) : level
      dataPoints.push({ startTime: this.#startTimeOf(type), endTime, attributes, value })
    }
    return [
      {
        descriptor: { ...descriptorOf(instrument), valueType },
        aggregationTemporality: this.#temporality(type),
        dataPointType: DataPointType.SUM,
        isMonotonic: instrument.kind === 'counter',
        dataPoints,
      },
    ]
  }

  #histograms(distributions: Iterable<Distribution>, endTime: HrTime): MetricData[] {
    const type = InstrumentType.HISTOGRAM
    if (this.#isDropped(type)) return []
    const [isDelta, startTime] = [this.#isDelta(type), this.#startTimeOf(type)]
    const metrics = new Map<string, ReturnType<typeof createMetric>>()
    for (const series of distributions) {
      const value = isDelta ? this.#toHistogramDelta(series) : toHistogram(series)
      if (value.count === 0) continue
      const { name } = series.instrument
      const metric = metrics.get(name) ?? createMetric(series, this.#temporality(type))
      metrics.set(name, metric)
      metric.dataPoints.push({ startTime, endTime, attributes: { ...series.labels }, value })
    }
    return [...metrics.values()]
  }

  #toHistogramDelta(series: Distribution): Histogram {
    const now = toHistogram(series)
    const key = `${series.instrument.name} ${JSON.stringify(series.labels)}`
    const seen = this.#reportedHistograms.get(key)
    this.#reportedHistograms.set(key, now)
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

  #toDelta(series: string, level: number): number {
    const seen = this.#reportedLevels.get(series) ?? 0
    this.#reportedLevels.set(series, level)
    return level - seen
  }

  #startTimeOf(type: InstrumentType): HrTime {
    return this.#isDelta(type) ? this.#lastCollected : this.#startTime
  }

  #temporality(type: InstrumentType): AggregationTemporality {
    return this.#parts.reader.selectAggregationTemporality(type)
  }

  #isDelta(type: InstrumentType): boolean {
    return this.#temporality(type) === AggregationTemporality.DELTA
  }

  #isDropped(type: InstrumentType): boolean {
    return this.#parts.reader.selectAggregation(type).type === AggregationType.DROP
  }
}

const sumTypeOf = ({ kind }: { readonly kind: 'counter' | 'updowncounter' }): InstrumentType =>
  kind === 'counter' ? InstrumentType.COUNTER : InstrumentType.UP_DOWN_COUNTER

const descriptorOf = ({ name, unit, description }: InstrumentInfo): InstrumentInfo => ({
  name,
  unit,
  description,
})

function createMetric({ instrument }: Distribution, temporality: AggregationTemporality) {
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

type AnyPoint = DataPoint<number> | DataPoint<Histogram>

class TaskSeries {
  readonly type: InstrumentType
  readonly #reportedValues: Map<string, number> | null
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
    this.#reportedValues = isDelta ? new Map() : null
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
    if (this.#reportedValues !== null) {
      const seen = this.#reportedValues.get(record.uid) ?? 0
      this.#reportedValues.set(record.uid, value)
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

/**
 * The bucket counts of a histogram with a single value, by the number of buckets and the index of
 * the value's bucket.
 */
const oneHotCache = new Map<number, number[][]>()

function oneHotCounts(buckets: number, hot: number): number[] {
  let all = oneHotCache.get(buckets)
  if (all === undefined) {
    all = Array.from({ length: buckets }, (_, one) =>
      Array.from({ length: buckets }, (__, at) => Number(at === one)),
    )
    oneHotCache.set(buckets, all)
  }
  return all[hot] ?? []
}

function toSingleHistogram(bounds: readonly number[], seconds: number): Histogram {
  const bucket = bounds.findIndex((bound) => seconds <= bound)
  const counts = oneHotCounts(bounds.length + 1, bucket === -1 ? bounds.length : bucket)
  const boundaries = bounds as number[]
  return { buckets: { boundaries, counts }, sum: seconds, count: 1, min: seconds, max: seconds }
}
