/** The text format of Prometheus, with the names that OpenTelemetry's exporter uses. Pure. */

import type { Distribution, Distributions, Labels } from '../../events/measurement.ts'

export interface MetricHead {
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly description: string
}

/** A metric with its current values. */
export interface PlainMetric extends MetricHead {
  readonly kind: 'counter' | 'gauge'
  readonly points: readonly { readonly labels: Labels; readonly value: number }[]
}

/** Plain metrics and distributions as one text. */
export function toPrometheusText(metrics: readonly PlainMetric[], measured: Distributions): string {
  let text = ''
  for (const metric of metrics) {
    text += headLines(metric)
    for (const { labels, value } of metric.points) {
      text += pointLine(metric, labelText(labels), value)
    }
  }
  return text + distributionLines(measured.all())
}

/** The `# HELP`, `# UNIT` and `# TYPE` lines of a metric. */
export function headLines(metric: MetricHead): string {
  const name = nameOf(metric)
  const unit = metric.unit === '' ? '' : `# UNIT ${name} ${escape(metric.unit)}\n`
  return `# HELP ${name} ${escape(metric.description)}\n${unit}# TYPE ${name} ${metric.kind}\n`
}

/** `labels` is the result of `labelText`. */
export function pointLine(metric: MetricHead, labels: string, value: number): string {
  return line(nameOf(metric), labels, value)
}

/** The points of one histogram, without its head. */
export function histogramLines({ instrument, counts, sum, count }: Distribution, labels: string) {
  const name = toLegalName(instrument.name)
  let text = line(`${name}_count`, labels, count) + line(`${name}_sum`, labels, sum)
  let below = 0
  const before = labels === '' ? '' : `${labels},`
  for (const [at, inBucket] of counts.entries()) {
    below += inBucket
    const bound = instrument.boundaries[at]
    text += line(`${name}_bucket`, `${before}le="${bound ?? '+Inf'}"`, below)
  }
  return text
}

/** Distributions with their heads, grouped by instrument. */
export function distributionLines(distributions: Iterable<Distribution>): string {
  const texts = new Map<string, string>()
  for (const one of distributions) {
    const { name } = one.instrument
    const before = texts.get(name) ?? headLines({ ...one.instrument, kind: 'histogram' })
    texts.set(name, before + histogramLines(one, labelText(one.labels)))
  }
  return [...texts.values()].join('')
}

/** The labels as text, to be put between the braces of a line. */
export function labelText(labels: Labels): string {
  let text = ''
  for (const name in labels) {
    const value = escape(labels[name] ?? '').replaceAll('"', '\\"')
    text += `${text === '' ? '' : ','}${toLegalName(name)}="${value}"`
  }
  return text
}

const line = (name: string, labels: string, value: number): string =>
  labels === '' ? `${name} ${numberText(value)}\n` : `${name}{${labels}} ${numberText(value)}\n`

function nameOf({ name, kind }: MetricHead): string {
  const text = toLegalName(name)
  return kind === 'counter' && !text.endsWith('_total') ? `${text}_total` : text
}

function numberText(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}

const escape = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')

/** Metric and label names may contain only letters, digits and underscores. */
function toLegalName(name: string): string {
  const text = name.replaceAll(/[^a-z0-9_]/gi, '_').replaceAll(/_{2,}/g, '_')
  return /^\d/.test(text) ? `_${text}` : text
}
