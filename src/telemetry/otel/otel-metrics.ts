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
import type { Distributions } from '../../events/measurement.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { hasDuration } from '../../views/lifecycle.ts'
import type { ResourcesState } from '../../views/resources.ts'
import { durationInstrument, nodeInstruments, taskInstruments } from '../metrics/metrics.ts'
import { instrumentationScope, toHrTime } from './otel.ts'
import { DistributionSeries } from './otel-measurements.ts'
import type { TaskRecord } from '../metrics/task-record.ts'
import type { TaskTable } from '../metrics/task-table.ts'

interface ProducerParts {
  readonly reader: IMetricReader
  readonly resource: Resource
  readonly sessionId: string
  readonly tasks: TaskTable
  readonly nodes: ResourcesState
  readonly measured: Distributions
  readonly clock: Clock
}

/** The attached metric readers: bound at start, shut down at stop, each within the deadline. */
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
    // A shutdown collects and exports a last time: flushing before would do both twice.
    const closing = async (): Promise<void> => reader.shutdown()
    await boundedWait(clock, deadlineMs, closing()).catch((error: unknown) =>
      log.warn('MetricReaderError', `a metric reader did not shut down: ${messageOf(error)}`),
    )
  }
}

/** Tasks per turn of the loop while collecting, so that many tasks do not block it. */
const sliceSize = 10_000
const boundaries = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600]
/** A task has one duration, so its bucket counts are one of these. */
const oneHot = Array.from({ length: boundaries.length + 1 }, (_, hot) =>
  Array.from({ length: boundaries.length + 1 }, (__, at) => Number(at === hot)),
)

/** One per reader: with delta temporality it keeps what that reader has received. */
class TableMetricProducer implements MetricProducer {
  readonly #parts: ProducerParts
  readonly #startTime: HrTime
  readonly #series: TaskSeries[]
  /** With delta temporality: the last value of each node's gauge that the reader received. */
  readonly #seenLevels = new Map<string, number>()
  readonly #measured: DistributionSeries
  #lastCollected: HrTime
  #collecting: Promise<unknown> = Promise.resolve()

  constructor(parts: ProducerParts) {
    this.#parts = parts
    this.#startTime = toHrTime(parts.clock.now())
    this.#lastCollected = this.#startTime
    this.#measured = new DistributionSeries(parts.measured)
    this.#series = [...taskInstruments.map((one) => this.#sumSeries(one)), this.#durationSeries()]
  }

  /** One at a time: a collection takes several turns of the loop, and the series are shared. */
  collect(): Promise<CollectionResult> {
    const collected = this.#collecting.then(() => this.#collect())
    this.#collecting = collected.catch(() => {})
    return collected
  }

  async #collect(): Promise<CollectionResult> {
    const { resource, tasks, clock } = this.#parts
    const endTime = toHrTime(clock.now())
    const series = this.#series.filter(({ type }) => !this.#isDropped(type))
    for (const one of series) one.begin(this.#beginOf(one.type), endTime)
    let inSlice = 0
    for (const record of tasks.records()) {
      const labels = this.#labelsOf(record)
      for (const one of series) one.add(record, labels)
      if (++inSlice % sliceSize === 0) await new Promise<void>((go) => clock.nextTurn(go))
    }
    const metrics = [
      ...series.map((one) => one.finish()),
      ...this.#nodeMetrics(endTime),
      ...this.#measuredMetrics(endTime),
    ]
    this.#lastCollected = endTime
    return {
      resourceMetrics: { resource, scopeMetrics: [{ scope: instrumentationScope, metrics }] },
      errors: [],
    }
  }

  #sumSeries(instrument: (typeof taskInstruments)[number]): TaskSeries {
    const isMonotonic = instrument.kind === 'counter'
    const type = isMonotonic ? InstrumentType.COUNTER : InstrumentType.UP_DOWN_COUNTER
    return new TaskSeries(type, this.#isDelta(type), instrument.perTask, (points) => ({
      descriptor: { ...descriptorOf(instrument), valueType: ValueType.INT },
      aggregationTemporality: this.#temporality(type),
      dataPointType: DataPointType.SUM,
      dataPoints: points as DataPoint<number>[],
      isMonotonic,
    }))
  }

  #durationSeries(): TaskSeries {
    const type = InstrumentType.HISTOGRAM
    const observe = (record: TaskRecord) => (hasDuration(record.passed) ? 1 : null)
    return new TaskSeries(
      type,
      this.#isDelta(type),
      observe,
      (points) => ({
        descriptor: { ...descriptorOf(durationInstrument), valueType: ValueType.DOUBLE },
        aggregationTemporality: this.#temporality(type),
        dataPointType: DataPointType.HISTOGRAM,
        dataPoints: points as DataPoint<Histogram>[],
      }),
      (record) => toHistogram(record.durationSeconds),
    )
  }

  #nodeMetrics(endTime: HrTime): MetricData[] {
    const { nodes, sessionId } = this.#parts
    const type = InstrumentType.UP_DOWN_COUNTER
    if (this.#isDropped(type)) return []
    return nodeInstruments.map((instrument) => ({
      descriptor: { ...descriptorOf(instrument), valueType: ValueType.DOUBLE },
      aggregationTemporality: this.#temporality(type),
      dataPointType: DataPointType.SUM,
      isMonotonic: false,
      dataPoints: [...nodes.nodes.values()].flatMap((node) => {
        const level = instrument.perNode(node)
        if (level === null) return []
        const labels = { session_id: sessionId, backend: node.backend, node_id: node.nodeId }
        const value = this.#isDelta(type)
          ? this.#differenceOf(JSON.stringify([instrument.name, labels]), level)
          : level
        return [{ startTime: this.#beginOf(type), endTime, attributes: labels, value }]
      }),
    }))
  }

  #measuredMetrics(endTime: HrTime): MetricData[] {
    const type = InstrumentType.HISTOGRAM
    if (this.#isDropped(type)) return []
    const period = { startTime: this.#beginOf(type), endTime }
    return this.#measured.collect(period, this.#temporality(type))
  }

  #differenceOf(series: string, level: number): number {
    const seen = this.#seenLevels.get(series) ?? 0
    this.#seenLevels.set(series, level)
    return level - seen
  }

  #labelsOf(record: TaskRecord): Attributes {
    return {
      session_id: this.#parts.sessionId,
      backend: record.backend,
      task_id: record.uid,
      executable: record.executable,
      task_type: record.taskType,
    }
  }

  #beginOf(type: InstrumentType): HrTime {
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

type AnyPoint = DataPoint<number> | DataPoint<Histogram>

/** The points of one instrument during a collection. */
class TaskSeries {
  readonly type: InstrumentType
  readonly #seen: Map<string, number> | null
  readonly #perTask: (record: TaskRecord) => number | null
  readonly #toMetric: (points: AnyPoint[]) => MetricData
  readonly #toHistogram: ((record: TaskRecord) => Histogram) | undefined
  #points: AnyPoint[] = []
  #startTime: HrTime = [0, 0]
  #endTime: HrTime = [0, 0]

  constructor(
    type: InstrumentType,
    isDelta: boolean,
    perTask: (record: TaskRecord) => number | null,
    toMetric: (points: AnyPoint[]) => MetricData,
    histogramOf?: (record: TaskRecord) => Histogram,
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

  add(record: TaskRecord, attributes: Attributes): void {
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

function descriptorOf({ name, unit, description }: typeof durationInstrument) {
  return { name, unit, description }
}

function toHistogram(seconds: number): Histogram {
  const above = boundaries.findIndex((bound) => seconds <= bound)
  const counts = oneHot[above === -1 ? boundaries.length : above] ?? []
  return { buckets: { boundaries, counts }, sum: seconds, count: 1, min: seconds, max: seconds }
}
