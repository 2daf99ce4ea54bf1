import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { AggregationTemporality, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace'
import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../../src/events/vocabulary.ts'
import { runInTask } from '../../src/foundation/task-context.ts'
import { version } from '../../src/foundation/version.ts'
import type { TelemetryOptions } from '../../src/telemetry/options.ts'
import { openTelemetry, emitTaskEvent } from './open-telemetry.ts'
import {
  metricsOf,
  plainAttributes,
  spansOfTraces,
  startReceiver,
  type TraceRequest,
  type WireMetric,
  type WirePoint,
  type WireSpan,
} from './otlp-receiver.ts'

const Found = defineEvent('wire.Found', {})

/** Tasks with every end, scopes, annotations, and one task that stays open. */
async function eventfulRun(options: Partial<TelemetryOptions>) {
  const open = openTelemetry({ stopDeadlineSeconds: 60, ...options })
  const { telemetry, clock } = open
  telemetry.registerSpanEnricher(() => ({ ratio: 0.5, whole: 3, isTest: true, words: 'ünïcödé' }))
  await telemetry.start()
  const to = { sink: telemetry, clock }
  for (const uid of ['done', 'failed', 'canceled', 'open']) {
    await clock.advance(250)
    emitTaskEvent(to, TaskCreated, uid)
    emitTaskEvent(to, TaskSubmitted, uid)
    emitTaskEvent(to, TaskQueued, uid, { attributes: { task_type: 'compute', place: 4 } })
    await clock.advance(1000)
    emitTaskEvent(to, TaskStarted, uid, {
      node_id: 'n1',
      attributes: { worker_id: 'w1', attempt: 1 },
    })
    // A repeated report changes no span.
    emitTaskEvent(to, TaskStarted, uid, { attributes: { worker_id: 'w2' } })
  }
  await runInTask('done', () =>
    telemetry.spanScope('step', { n: 1, list: [1, 'two'] }, async () => {
      await clock.advance(7000)
      const attributes = { count: 2, isNew: true }
      telemetry.annotateCurrentSpan(
        makeEvent(Found, { session_id: 's1', backend: 'app', event_time: clock.now(), attributes }),
      )
    }),
  )
  const failing = telemetry.spanScope('failing', async () => {
    throw new Error('no luck')
  })
  await failing.catch(() => {})
  emitTaskEvent(to, TaskCompleted, 'done', { duration_seconds: 2 })
  emitTaskEvent(to, TaskFailed, 'failed', { duration_seconds: 0.02, error_type: 'RangeError' })
  emitTaskEvent(to, TaskCanceled, 'canceled', { duration_seconds: 9 })
  return open
}

/** The content of a span, in one form for both encodings. */
function said(span: WireSpan) {
  const { traceId, spanId, name, kind, startTimeUnixNano, endTimeUnixNano, status } = span
  return {
    ids: [traceId, spanId, span.parentSpanId ?? ''],
    name,
    kind,
    times: [startTimeUnixNano, endTimeUnixNano],
    attributes: plainAttributes(span.attributes),
    events: (span.events ?? []).map((event) => ({
      name: event.name,
      time: event.timeUnixNano,
      attributes: plainAttributes(event.attributes),
    })),
    status: [status?.code ?? 0, status?.message ?? ''],
  }
}

const byId = (spans: readonly WireSpan[]) =>
  spans.map(said).toSorted((a, b) => ((a.ids[1] ?? '') < (b.ids[1] ?? '') ? -1 : 1))

describe('a standard OTLP exporter', () => {
  it('OTLP exporter: sends the spans that exportAsOtlp returns', async () => {
    const receiver = await startReceiver()
    const exporter = new OTLPTraceExporter({ url: receiver.tracesUrl })
    const { telemetry } = await eventfulRun({
      spanProcessors: [new BatchSpanProcessor({ exporter })],
    })
    await telemetry.stop()
    const exported = JSON.parse(telemetry.exportAsOtlp()) as TraceRequest
    const sent = spansOfTraces(receiver.traces)
    expect(sent.map(({ name }) => name).toSorted()).toEqual([
      'failing',
      'session',
      'step',
      'task',
      'task',
      'task',
      'task',
    ])
    expect(byId(sent)).toEqual(byId(spansOfTraces([exported])))
    for (const { resourceSpans } of [exported, ...receiver.traces]) {
      for (const { scopeSpans } of resourceSpans) {
        expect(scopeSpans.map(({ scope }) => scope)).toEqual([{ name: 'rhapsody', version }])
      }
    }
    const resources = [exported, ...receiver.traces].map(({ resourceSpans }) =>
      plainAttributes(resourceSpans[0]?.resource.attributes),
    )
    expect(resources[0]).toMatchObject({ 'service.name': 'tutti' })
    expect(resources[1]).toEqual(resources[0])
  })

  it('OTLP exporter: sends the specified fields of a span', async () => {
    const receiver = await startReceiver()
    const exporter = new OTLPTraceExporter({ url: receiver.tracesUrl })
    const { telemetry } = await eventfulRun({
      spanProcessors: [new BatchSpanProcessor({ exporter })],
    })
    await telemetry.stop()
    const sent = spansOfTraces(receiver.traces).map(said)
    const ofTask = (uid: string) => sent.find(({ attributes }) => attributes['task_id'] === uid)
    const named = (name: string) => sent.find((span) => span.name === name)
    const session = named('session')
    expect(sent.every(({ kind }) => kind === 1)).toBe(true)
    expect(new Set(sent.map(({ ids }) => ids[0]))).toEqual(new Set([session?.ids[0]]))
    expect(session?.ids[2]).toBe('')
    expect(ofTask('done')).toMatchObject({
      ids: [session?.ids[0], expect.any(String), session?.ids[1]],
      times: ['1700000000250000000', '1700000012000000000'],
      attributes: {
        session_id: 's1',
        backend: 'local',
        status: 'completed',
        ratio: 0.5,
        whole: 3,
        isTest: true,
        words: 'ünïcödé',
      },
      events: [
        { name: 'TaskQueued', time: '1700000000250000000', attributes: { place: '4' } },
        { name: 'TaskStarted', attributes: { worker_id: 'w1', attempt: '1' } },
      ],
      status: [1, ''],
    })
    expect(ofTask('failed')?.status).toEqual([2, 'RangeError'])
    expect(ofTask('failed')?.attributes).toMatchObject({ error_type: 'RangeError' })
    expect(ofTask('canceled')?.status).toEqual([0, ''])
    expect(ofTask('open')?.status).toEqual([0, ''])
    expect(ofTask('open')?.attributes).not.toHaveProperty('status')
    expect(named('step')?.ids[2]).toBe(ofTask('done')?.ids[1])
    expect(named('step')?.attributes).toEqual({ n: 1, list: '[1,"two"]' })
    expect(named('step')?.events).toMatchObject([
      { name: 'wire.Found', attributes: { count: '2', isNew: 'true' } },
    ])
    expect(named('failing')?.status).toEqual([2, 'no luck'])
  })
})

const common = { session_id: 's1', backend: 'local' }
const task = (uid: string) => ({
  ...common,
  task_id: uid,
  executable: './simulate',
  task_type: 'compute',
})
const update = (node: string, cpu: number, fields: object = {}) =>
  makeEvent(ResourceUpdate, {
    session_id: 's1',
    backend: 'local',
    node_id: node,
    cpu_percent: cpu,
    memory_percent: cpu / 2,
    ...fields,
  })

const valueOf = (point: WirePoint): unknown =>
  point.asInt === undefined ? (point.asDouble ?? point) : Number(point.asInt)

const seriesOf = (metric: WireMetric | undefined): [Record<string, unknown>, unknown][] =>
  (metric?.sum?.dataPoints ?? metric?.histogram?.dataPoints ?? []).map((point) => [
    plainAttributes(point.attributes),
    valueOf(point),
  ])

async function exportMetrics(temporality: AggregationTemporality) {
  const receiver = await startReceiver()
  const exporter = new OTLPMetricExporter({
    url: receiver.metricsUrl,
    temporalityPreference: temporality,
  })
  const reader = new PeriodicExportingMetricReader({ exporter })
  const { telemetry } = await eventfulRun({ metricReaders: [reader] })
  telemetry.emit(update('n1', 50))
  telemetry.emit(update('n2', 20, { gpu_percent: 80 }))
  telemetry.emit(update('n1', 0, { gpu_id: 0, gpu_percent: 99, cpu_percent: null }))
  await reader.forceFlush()
  telemetry.emit(update('n1', 30))
  await telemetry.stop()
  const named = (at: number, name: string) =>
    metricsOf(receiver.metrics[at] ?? { resourceMetrics: [] }).find((one) => one.name === name)
  return { receiver, named }
}

describe('a standard OTLP metric exporter', () => {
  const cumulative = AggregationTemporality.CUMULATIVE

  it('OTLP metric exporter: sends every instrument with name, type and unit', async () => {
    const { receiver } = await exportMetrics(cumulative)
    const [first] = receiver.metrics
    const shape = metricsOf(first ?? { resourceMetrics: [] }).map(({ name, unit, sum }) => [
      name,
      unit,
      sum === undefined ? 'histogram' : sum.isMonotonic === true ? 'counter' : 'up-down counter',
    ])
    expect(shape).toEqual([
      ['tasks_submitted', 'tasks', 'counter'],
      ['tasks_started', 'tasks', 'counter'],
      ['tasks_completed', 'tasks', 'counter'],
      ['tasks_failed', 'tasks', 'counter'],
      ['tasks_canceled', 'tasks', 'counter'],
      ['tasks_running', 'tasks', 'up-down counter'],
      ['tasks_queued', 'tasks', 'up-down counter'],
      ['task_duration_seconds', 'seconds', 'histogram'],
      ['task_queue_seconds', 'seconds', 'histogram'],
      ['node_cpu_utilization', '%', 'up-down counter'],
      ['node_memory_utilization', '%', 'up-down counter'],
      ['node_gpu_utilization', '%', 'up-down counter'],
    ])
    const [scoped] = first?.resourceMetrics[0]?.scopeMetrics ?? []
    expect(scoped?.scope).toEqual({ name: 'rhapsody', version })
  })

  it('OTLP metric exporter: sends each task and node with its labels, cumulative', async () => {
    const { receiver, named } = await exportMetrics(cumulative)
    expect(receiver.metrics).toHaveLength(2)
    const all = ['done', 'failed', 'canceled', 'open']
    const ended = ['done', 'failed', 'canceled']
    expect(seriesOf(named(0, 'tasks_submitted'))).toEqual(all.map((uid) => [task(uid), 1]))
    expect(seriesOf(named(0, 'tasks_completed'))).toEqual([[task('done'), 1]])
    expect(seriesOf(named(0, 'tasks_failed'))).toEqual([[task('failed'), 1]])
    expect(seriesOf(named(0, 'tasks_canceled'))).toEqual([[task('canceled'), 1]])
    expect(seriesOf(named(0, 'tasks_running'))).toEqual([
      ...ended.map((uid) => [task(uid), 0]),
      [task('open'), 1],
    ])
    expect(seriesOf(named(1, 'tasks_running')).map(([, value]) => value)).toEqual([0, 0, 0, 0])
    const durations = seriesOf(named(0, 'task_duration_seconds'))
    expect(durations.map(([labels]) => labels)).toEqual([task('done'), task('failed')])
    const [done] = named(0, 'task_duration_seconds')?.histogram?.dataPoints ?? []
    expect(done).toMatchObject({ count: '1', sum: 2, min: 2, max: 2 })
    const at = done?.bucketCounts?.indexOf('1') ?? -1
    expect(done?.explicitBounds?.[at - 1]).toBeLessThan(2)
    expect(done?.explicitBounds?.[at]).toBeGreaterThanOrEqual(2)
    expect(seriesOf(named(0, 'node_cpu_utilization'))).toEqual([
      [{ ...common, node_id: 'n1' }, 50],
      [{ ...common, node_id: 'n2' }, 20],
    ])
    expect(seriesOf(named(0, 'node_gpu_utilization'))).toEqual([[{ ...common, node_id: 'n2' }, 80]])
    expect(seriesOf(named(1, 'node_cpu_utilization'))[0]?.[1]).toBe(30)
    expect(seriesOf(named(1, 'tasks_submitted'))).toHaveLength(4)
  })

  it('OTLP metric exporter: sends only what is new with delta temporality', async () => {
    const { receiver, named } = await exportMetrics(AggregationTemporality.DELTA)
    expect(receiver.metrics).toHaveLength(2)
    const temporalities = metricsOf(receiver.metrics[0] ?? { resourceMetrics: [] }).map((one) => [
      one.name,
      (one.sum ?? one.histogram)?.aggregationTemporality,
    ])
    // OTLP's own rule: up-down counters stay cumulative.
    for (const [name, temporality] of temporalities) {
      expect([name, temporality]).toEqual([name, /running|queued|node/.test(String(name)) ? 2 : 1])
    }
    expect(seriesOf(named(0, 'tasks_submitted'))).toHaveLength(4)
    expect(seriesOf(named(1, 'tasks_submitted'))).toEqual([])
    expect(seriesOf(named(1, 'task_duration_seconds'))).toEqual([])
    const [first] = named(0, 'tasks_submitted')?.sum?.dataPoints ?? []
    expect(Number(first?.startTimeUnixNano)).toBeLessThan(Number(first?.timeUnixNano))
  })
})
