import { AggregationTemporality, MetricReader } from '@opentelemetry/sdk-metrics'
import { describe, expect, it } from 'vitest'
import { Distributions, type HistogramInstrument } from '../../src/events/measurement.ts'
import type { WorkSpan } from '../../src/events/sink.ts'
import { TaskCompleted, TaskCreated } from '../../src/events/vocabulary.ts'
import { newSpanId } from '../../src/foundation/ids.ts'
import { toPrometheusText } from '../../src/telemetry/metrics/prometheus-text.ts'
import { metricsIn, openTelemetry, spansIn, emitTaskEvent } from './open-telemetry.ts'

const latency: HistogramInstrument = {
  name: 'work.latency',
  unit: 's',
  description: 'how long work took',
  boundaries: [0.1, 1],
}

class PulledReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

function workSpan(fields: Partial<WorkSpan>): WorkSpan {
  const spanId = newSpanId()
  const times = { startTime: 10, endTime: 12.5 }
  const rest = { taskId: null, attributes: { model: 'm' }, error: null, links: [] }
  return { spanId, name: 'chat m', ...times, ...rest, ...fields }
}

describe('spans of finished work', () => {
  it('work spans: are under their task, with times and links, in file and export', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const sink = telemetry
    emitTaskEvent({ sink, clock }, TaskCreated, 't1')
    const request = workSpan({ taskId: 't1', error: 'engine lost' })
    const batch = workSpan({ name: 'batch m', links: [request.spanId] })
    telemetry.recordSpan(request)
    telemetry.recordSpan(batch)
    emitTaskEvent({ sink, clock }, TaskCompleted, 't1')
    await telemetry.stop()
    const spans = spansIn(folder)
    const task = spans.find(({ name }) => name === 'task')
    const session = spans.find(({ name }) => name === 'session')
    expect(spans.find(({ name }) => name === 'chat m')).toMatchObject({
      span_id: request.spanId,
      parent_span_id: task?.span_id,
      trace_id: session?.trace_id,
      start_time: 10,
      end_time: 12.5,
      duration_ms: 2500,
      status_code: 'ERROR',
      status_description: 'engine lost',
      attributes: { model: 'm' },
    })
    expect(spans.find(({ name }) => name === 'batch m')).toMatchObject({
      parent_span_id: session?.span_id,
      links: [request.spanId],
    })
    const exported = telemetry.exportAsOtlp()
    expect(exported).toContain(`"links":[{`)
    expect(exported.split(request.spanId)).toHaveLength(3)
  })

  it('work spans: are under a task that has ended; after stop they are ignored', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 't1')
    emitTaskEvent({ sink: telemetry, clock }, TaskCompleted, 't1')
    telemetry.recordSpan(workSpan({ taskId: 't1' }))
    await telemetry.stop()
    telemetry.recordSpan(workSpan({ name: 'late' }))
    const spans = spansIn(folder)
    const task = spans.find(({ name }) => name === 'task')
    expect(spans.map(({ name }) => name)).toEqual(['task', 'chat m', 'session'])
    expect(spans.find(({ name }) => name === 'chat m')?.parent_span_id).toBe(task?.span_id)
  })
})

describe('measurements', () => {
  it('measurements: are summed in metric lines and exported by their labels', async () => {
    const reader = new PulledReader()
    const { telemetry, folder } = openTelemetry({ metricReaders: [reader] })
    await telemetry.start()
    expect(telemetry.readMetrics()).not.toHaveProperty('work.latency_count')
    for (const [value, model] of [
      [0.05, 'a'],
      [0.5, 'a'],
      [7, 'b'],
      [Number.NaN, 'b'],
    ] as const) {
      telemetry.recordMeasurement({ instrument: latency, value, labels: { model } })
    }
    const { resourceMetrics } = await reader.collect()
    const metric = resourceMetrics.scopeMetrics[0]?.metrics.find(
      ({ descriptor }) => descriptor.name === 'work.latency',
    )
    expect(metric).toMatchObject({
      descriptor: { unit: 's', description: 'how long work took' },
      dataPoints: [
        { attributes: { model: 'a' }, value: { count: 2, buckets: { counts: [1, 1, 0] } } },
        { attributes: { model: 'b' }, value: { count: 1, sum: 7, min: 7, max: 7 } },
      ],
    })
    await telemetry.stop()
    expect(metricsIn(folder).at(-1)).toMatchObject({
      'work.latency_count': 3,
      'work.latency_sum': 7.55,
    })
  })

  it('measurements: a reader with delta temporality gets each once', async () => {
    const reader = new PulledReader({
      aggregationTemporalitySelector: () => AggregationTemporality.DELTA,
    })
    const { telemetry } = openTelemetry({ metricReaders: [reader] })
    await telemetry.start()
    const counts = async () => {
      const { resourceMetrics } = await reader.collect()
      return resourceMetrics.scopeMetrics
        .flatMap(({ metrics }) => metrics)
        .filter(({ descriptor }) => descriptor.name === 'work.latency')
        .flatMap(({ dataPoints }) => dataPoints.map(({ value }) => value))
    }
    const record = (value: number) =>
      telemetry.recordMeasurement({ instrument: latency, value, labels: {} })
    record(0.05)
    record(5)
    expect(await counts()).toMatchObject([{ count: 2, sum: 5.05 }])
    expect(await counts()).toEqual([])
    record(0.5)
    expect(await counts()).toMatchObject([{ count: 1, sum: 0.5, buckets: { counts: [0, 1, 0] } }])
    await telemetry.stop()
  })

  it('measurements: the number of series is limited whatever the labels', () => {
    const measured = new Distributions()
    for (let at = 0; at < 3000; at++) {
      measured.record({ instrument: latency, value: 1, labels: { model: `m${at}` } })
    }
    const series = [...measured.list()]
    expect(series).toHaveLength(1001)
    expect(series.at(-1)).toMatchObject({ labels: { overflow: 'true' }, count: 2000 })
  })

  it('measurements: are written as Prometheus text with plain numbers', () => {
    const measured = new Distributions()
    measured.record({ instrument: latency, value: 0.5, labels: { model: 'a' } })
    const queue = { name: 'queue_depth', kind: 'gauge', unit: '1', description: 'waiting' } as const
    const text = toPrometheusText({
      metrics: [{ ...queue, points: [{ labels: { model: 'a' }, value: 4 }] }],
      distributions: [...measured.list()],
    })
    expect(text).toContain('# TYPE queue_depth gauge')
    expect(text).toContain('queue_depth{model="a"} 4')
    expect(text).toContain('work_latency_bucket{model="a",le="1"} 1')
    expect(text).toContain('work_latency_count{model="a"} 1')
  })
})
