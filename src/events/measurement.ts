/** Measurements that backends report, and histograms of their values. */

import { maskSecretsIn } from '../foundation/secrets.ts'

/** Describes a metric. All code that measures it shares one object. */
export interface HistogramInstrument {
  readonly name: string
  readonly unit: string
  readonly description: string
  /**
   * The upper bounds of the buckets, ascending. One more bucket holds values above the last bound.
   */
  readonly boundaries: readonly number[]
}

/** The labels of a series of a metric. */
export type Labels = Readonly<Record<string, string>>

/** A counter or a gauge with its present values. */
export interface PlainMetric {
  readonly name: string
  readonly kind: 'counter' | 'gauge'
  readonly unit: string
  readonly description: string
  readonly points: readonly { readonly labels: Labels; readonly value: number }[]
}

/** The present values of several metrics. */
export interface MetricValues {
  readonly metrics: readonly PlainMetric[]
  readonly distributions: readonly Distribution[]
}

/** One value of a metric, as a backend reports it. */
export interface Measurement {
  readonly instrument: HistogramInstrument
  readonly value: number
  readonly labels: Labels
}

/** The histogram of one instrument with one set of labels. */
export interface Distribution {
  readonly instrument: HistogramInstrument
  readonly labels: Labels
  readonly counts: number[]
  sum: number
  count: number
  min: number
  max: number
}

/**
 * Adds the session and backend to the labels of measurements. Returns the same object for the same
 * labels object, so that the series of a measurement is found without building a key.
 */
export class OriginLabels {
  readonly #origin: Labels
  readonly #known = new WeakMap<Labels, Labels>()

  constructor(sessionId: string, backend: string) {
    this.#origin = { session_id: sessionId, backend }
  }

  addOrigin(measurement: Measurement): Measurement {
    const { labels } = measurement
    let all = this.#known.get(labels)
    if (all === undefined) {
      all = { ...this.#origin, ...maskSecretsIn(labels) }
      this.#known.set(labels, all)
    }
    return { ...measurement, labels: all }
  }
}

export function createDistribution(instrument: HistogramInstrument, labels: Labels): Distribution {
  return {
    instrument,
    labels,
    counts: Array.from({ length: instrument.boundaries.length + 1 }, () => 0),
    sum: 0,
    count: 0,
    min: Infinity,
    max: -Infinity,
  }
}

/** Adds a value, which must be finite. */
export function addValue(distribution: Distribution, value: number): void {
  const { counts, instrument } = distribution
  const above = instrument.boundaries.findIndex((bound) => value <= bound)
  const bucket = above === -1 ? instrument.boundaries.length : above
  counts[bucket] = (counts[bucket] ?? 0) + 1
  distribution.sum += value
  distribution.count++
  distribution.min = Math.min(distribution.min, value)
  distribution.max = Math.max(distribution.max, value)
}

/**
 * The maximum number of series, because labels may be untrusted. Further series count as
 * `overflow`.
 */
const maxSeries = 1000

/** The distributions of all measurements so far, by instrument and labels. */
export class Distributions {
  readonly #series = new Map<string, Distribution>()
  /** The series by labels object. If a caller reuses the object, no key needs to be built. */
  readonly #byLabels = new WeakMap<Labels, Map<HistogramInstrument, Distribution>>()

  record({ instrument, value, labels }: Measurement): void {
    if (Number.isFinite(value)) addValue(this.#getSeries(instrument, labels), value)
  }

  list(): IterableIterator<Distribution> {
    return this.#series.values()
  }

  #getSeries(instrument: HistogramInstrument, labels: Labels): Distribution {
    const byInstrument = this.#byLabels.get(labels)
    const known = byInstrument?.get(instrument)
    if (known !== undefined) return known
    const found = this.#getOrCreate(instrument, labels)
    if (byInstrument === undefined) this.#byLabels.set(labels, new Map([[instrument, found]]))
    else byInstrument.set(instrument, found)
    return found
  }

  #getOrCreate(instrument: HistogramInstrument, labels: Labels): Distribution {
    const key = `${instrument.name} ${JSON.stringify(labels)}`
    const known = this.#series.get(key)
    if (known !== undefined) return known
    if (this.#series.size >= maxSeries && labels !== overflowLabels) {
      return this.#getOrCreate(instrument, overflowLabels)
    }
    const created = createDistribution(instrument, labels)
    this.#series.set(key, created)
    return created
  }
}

/** The labels of measurements beyond the limit on series. */
export const overflowLabels: Labels = { overflow: 'true' }
