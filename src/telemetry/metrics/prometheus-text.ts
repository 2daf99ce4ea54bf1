/** The text format of Prometheus, with the names that OpenTelemetry's exporter uses. Pure. */

import type { Distribution, Labels, MetricValues } from '../../events/measurement.ts'

export interface MetricHead {
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly description: string
}

export const toMetricHead = (instrument: Omit<MetricHead, 'kind'> & { readonly kind: string }) =>
  ({ ...instrument, kind: instrument.kind === 'counter' ? 'counter' : 'gauge' }) as const

export function toPrometheusText({ metrics, distributions }: MetricValues): string {
  let text = ''
  for (const metric of metrics) {
    text += headLines(metric)
    for (const { labels, value } of metric.points) {
      text += pointLine(metric, labelText(labels), value)
    }
  }
  return text + distributionLines(distributions)
}

/** The `# HELP`, `# UNIT` and `# TYPE` lines of a metric. */
export function headLines(metric: MetricHead): string {
  const name = metricName(metric)
  const unit = metric.unit === '' ? '' : `# UNIT ${name} ${escape(metric.unit)}\n`
  return `# HELP ${name} ${escape(metric.description)}\n${unit}# TYPE ${name} ${metric.kind}\n`
}

/** Formats one point. `labels` is the result of `labelText`. */
export function pointLine(metric: MetricHead, labels: string, value: number): string {
  return formatLine(metricName(metric), labels, value)
}

/** The points of one histogram, without its head. */
export function histogramLines({ instrument, counts, sum, count }: Distribution, labels: string) {
  const name = toLegalName(instrument.name)
  let text = formatLine(`${name}_count`, labels, count) + formatLine(`${name}_sum`, labels, sum)
  let cumulativeCount = 0
  const before = labels === '' ? '' : `${labels},`
  for (const [at, inBucket] of counts.entries()) {
    cumulativeCount += inBucket
    const bound = instrument.boundaries[at]
    text += formatLine(`${name}_bucket`, `${before}le="${bound ?? '+Inf'}"`, cumulativeCount)
  }
  return text
}

/** Returns the lines of all distributions, with one head per instrument. */
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

const formatLine = (name: string, labels: string, value: number): string =>
  labels === '' ? `${name} ${formatNumber(value)}\n` : `${name}{${labels}} ${formatNumber(value)}\n`

function metricName({ name, kind }: MetricHead): string {
  const text = toLegalName(name)
  return kind === 'counter' && !text.endsWith('_total') ? `${text}_total` : text
}

function formatNumber(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}

const escape = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')

/** Replaces the characters that Prometheus does not allow in names of metrics and labels. */
function toLegalName(name: string): string {
  const text = name.replaceAll(/[^a-z0-9_]/gi, '_').replaceAll(/_{2,}/g, '_')
  return /^\d/.test(text) ? `_${text}` : text
}
