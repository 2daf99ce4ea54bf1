/** Plain numbers and distributions as Prometheus text. Loaded only for the first scrape. */

import { type HrTime, ValueType } from '@opentelemetry/api'
import { PrometheusSerializer } from '@opentelemetry/exporter-prometheus'
import { AggregationTemporality, DataPointType, type MetricData } from '@opentelemetry/sdk-metrics'
import type { Distributions, Labels } from '../../events/measurement.ts'
import { createResource, instrumentationScope, toHrTime } from './otel.ts'
import { DistributionSeries } from './otel-measurements.ts'

/** A metric with its current values. */
export interface PlainMetric {
  readonly name: string
  readonly kind: 'counter' | 'gauge'
  readonly unit: string
  readonly description: string
  readonly points: readonly { readonly labels: Labels; readonly value: number }[]
}

/** All metrics in the text format, with the time `now` (wall-clock seconds). */
export function toPrometheusText(
  metrics: readonly PlainMetric[],
  measured: Distributions,
  now: number,
): string {
  const period = { startTime: toHrTime(now), endTime: toHrTime(now) }
  const series = new DistributionSeries(measured)
  const scopeMetrics = [
    {
      scope: instrumentationScope,
      metrics: [
        ...metrics.map((metric) => toMetricData(metric, period)),
        ...series.collect(period, AggregationTemporality.CUMULATIVE),
      ],
    },
  ]
  const serializer = new PrometheusSerializer(undefined, false, undefined, true, true)
  return serializer.serialize({ resource: createResource({}), scopeMetrics })
}

function toMetricData(
  { name, kind, unit, description, points }: PlainMetric,
  period: { readonly startTime: HrTime; readonly endTime: HrTime },
): MetricData {
  const common = {
    descriptor: { name, unit, description, valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
    dataPoints: points.map(({ labels, value }) => ({
      ...period,
      attributes: { ...labels },
      value,
    })),
  }
  return kind === 'counter'
    ? { ...common, dataPointType: DataPointType.SUM, isMonotonic: true }
    : { ...common, dataPointType: DataPointType.GAUGE }
}
