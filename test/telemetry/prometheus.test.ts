import { createServer, type IncomingMessage, request } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { PrometheusSerializer } from '@opentelemetry/exporter-prometheus'
import { AggregationTemporality, MetricReader } from '@opentelemetry/sdk-metrics'
import { describe, expect, it, onTestFinished } from 'vitest'
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
import { type Clock, systemClock } from '../../src/foundation/clock.ts'
import { StateError, ValueError } from '../../src/foundation/errors.ts'
import { byRun } from '../long-run.ts'
import { emitTaskEvent, openTelemetry, withoutFile } from './open-telemetry.ts'

class ManualReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

const textOf = async (url: string): Promise<string> => (await fetch(url)).text()

/** The value of each series, by its name and labels as they are written. */
function seriesIn(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(' ')
      return [line.slice(0, at), Number(line.slice(at + 1))]
    }),
  )
}

/** Tasks of two executables in every state, a node and a measurement. */
async function busyTelemetry(options: object = {}) {
  const open = openTelemetry({ ...withoutFile, ...options })
  const { telemetry, clock } = open
  await telemetry.start()
  onTestFinished(() => telemetry.stop())
  const to = { sink: telemetry, clock }
  const odd = { executable: 'say "hi"\\\n', task_type: 'function' }
  const emit = (one: Parameters<typeof emitTaskEvent>[1], uid: string, fields = {}): unknown =>
    emitTaskEvent(to, one, uid, uid === 'odd' ? { attributes: odd, ...fields } : fields)
  const uids = ['done', 'failed', 'canceled', 'running', 'queued', 'odd', 'dropped']
  for (const uid of uids) for (const one of [TaskCreated, TaskSubmitted, TaskQueued]) emit(one, uid)
  await clock.advance(2000)
  for (const uid of ['done', 'failed', 'canceled', 'running', 'odd']) emit(TaskStarted, uid)
  emit(TaskCompleted, 'done', { duration_seconds: 0.25 })
  emit(TaskFailed, 'failed', { duration_seconds: 7000, error_type: 'Error' })
  for (const uid of ['canceled', 'dropped']) emit(TaskCanceled, uid)
  const node = { session_id: 's1', backend: 'local', node_id: 'n1' }
  telemetry.emit(makeEvent(ResourceUpdate, { ...node, cpu_percent: 12.5 }))
  telemetry.recordMeasurement({
    instrument: { name: 'work.latency', unit: 's', description: 'latency', boundaries: [1, 2] },
    value: 1.5,
    labels: { 'the.model': 'a' },
  })
  return open
}

const local = 'session_id="s1",backend="local",executable="./simulate",task_type="compute"'

describe('servePrometheus', () => {
  it('servePrometheus: has a series for each backend, executable and task type', async () => {
    const { telemetry } = await busyTelemetry()
    await using endpoint = await telemetry.servePrometheus({ port: 0 })
    const response = await fetch(`${endpoint.url}/metrics`)
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    const text = await response.text()
    const series = seriesIn(text)
    for (const [name, value] of [
      ['tasks_submitted_total', 6],
      ['tasks_started_total', 4],
      ['tasks_completed_total', 1],
      ['tasks_failed_total', 1],
      ['tasks_canceled_total', 2],
      ['tasks_running', 1],
      ['tasks_queued', 1],
      ['task_duration_seconds_count', 2],
      ['task_duration_seconds_sum', 7000.25],
      ['task_queue_seconds_count', 4],
      ['task_queue_seconds_sum', 8],
    ] as const) {
      expect([name, series.get(`${name}{${local}}`)]).toEqual([name, value])
    }
    expect(series.get(`task_queue_seconds_bucket{${local},le="1"}`)).toBe(0)
    expect(series.get(`task_queue_seconds_bucket{${local},le="5"}`)).toBe(4)
    expect(series.get(`task_duration_seconds_bucket{${local},le="+Inf"}`)).toBe(2)
    expect(text).not.toContain('task_id')
    expect(text).toContain('executable="say \\"hi\\"\\\\\\n",task_type="function"} 1\n')
    expect(await textOf(endpoint.url)).toBe(text)
  })

  it('servePrometheus: writes what the exporter of OpenTelemetry writes', async () => {
    for (const taskLabels of [true, false]) {
      const reader = new ManualReader()
      const { telemetry } = await busyTelemetry({ metricReaders: [reader], taskLabels })
      await using endpoint = await telemetry.servePrometheus({ port: 0, taskLabels })
      const { resourceMetrics } = await reader.collect()
      const serializer = new PrometheusSerializer(undefined, false, undefined, true, true)
      const expected = serializer.serialize(resourceMetrics)
      const lines = (text: string): string[] => text.split('\n').toSorted()
      expect(lines(await textOf(endpoint.url))).toEqual(lines(expected))
    }
  })

  it('servePrometheus: with taskLabels each task has its series', async () => {
    const { telemetry } = await busyTelemetry()
    await using endpoint = await telemetry.servePrometheus({ port: 0, taskLabels: true })
    const series = seriesIn(await textOf(`${endpoint.url}/metrics?x=1`))
    const labels = local.replace(',executable', ',task_id="running",executable')
    expect(series.get(`tasks_running{${labels}}`)).toBe(1)
    const submitted = [...series.keys()].filter((name) => name.startsWith('tasks_submitted_total'))
    expect(submitted).toHaveLength(7)
  })

  it('servePrometheus: other addresses and methods are refused', async () => {
    const { telemetry } = await busyTelemetry()
    await using endpoint = await telemetry.servePrometheus({ port: 0 })
    expect((await fetch(`${endpoint.url}/other`)).status).toBe(404)
    expect((await fetch(`${endpoint.url}/metrics`, { method: 'POST' })).status).toBe(405)
    const head = await fetch(`${endpoint.url}/metrics`, { method: 'HEAD' })
    expect([head.status, await head.text()]).toEqual([200, ''])
  })

  it('servePrometheus: refuses a foreign Host, by which a web page could read it', async () => {
    const { telemetry } = await busyTelemetry()
    const allowedHosts = ['Metrics.example']
    await using endpoint = await telemetry.servePrometheus({ port: 0, allowedHosts })
    const { port } = new URL(endpoint.url)
    const statusFor = async (host: string): Promise<number | undefined> => {
      const asked = request(`${endpoint.url}/metrics`, { headers: { host } }).end()
      const [response] = (await once(asked, 'response')) as [IncomingMessage]
      response.resume()
      return response.statusCode
    }
    const known = ['localhost', `LOCALHOST:${port}`, '127.0.0.1:1', `[::1]:${port}`, hostname()]
    for (const host of [...known, '192.0.2.7', 'metrics.example:80']) {
      expect([host, await statusFor(host)]).toEqual([host, 200])
    }
    for (const host of ['evil.example', `evil.example:${port}`, 'localhost.evil.example']) {
      expect([host, await statusFor(host)]).toEqual([host, 403])
    }
  })

  it('servePrometheus: stop closes it; it needs running telemetry and good options', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    await expect(telemetry.servePrometheus()).rejects.toBeInstanceOf(StateError)
    await telemetry.start()
    for (const [options, field] of [
      [{ port: -1 }, 'port'],
      [{ host: '' }, 'host'],
      [{ taskLabels: 1 }, 'taskLabels'],
      [{ allowedHosts: [1] }, 'allowedHosts[0]'],
    ] as const) {
      const error = await telemetry.servePrometheus(options as object).catch((one: unknown) => one)
      expect(error).toBeInstanceOf(ValueError)
      expect(error).toMatchObject({ field })
    }
    const endpoint = await telemetry.servePrometheus({ port: 0 })
    const stopping = telemetry.stop()
    await expect(telemetry.servePrometheus({ port: 0 })).rejects.toBeInstanceOf(StateError)
    await stopping
    await expect(fetch(endpoint.url)).rejects.toThrow()
    expect(endpoint.close()).toBe(endpoint.close())
  })

  it('servePrometheus: says which port is in use', async () => {
    const { telemetry } = await busyTelemetry()
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    onTestFinished(() => void other.close())
    const { port } = other.address() as AddressInfo
    await expect(telemetry.servePrometheus({ port })).rejects.toMatchObject({
      code: 'PrometheusListenError',
      message: expect.stringContaining(`port ${port} of 127.0.0.1`) as string,
    })
  })
})

describe('row 45: many tasks', () => {
  /** A millisecond passes at every reading, so that the turns do not depend on the machine. */
  function tickingClock() {
    let ms = 0
    const seen = { turns: 0 }
    const clock: Clock = {
      now: () => systemClock.now(),
      monotonicMs: () => ++ms,
      after: (...args) => systemClock.after(...args),
      nextTurn: (callback) => {
        seen.turns++
        systemClock.nextTurn(callback)
      },
    }
    return { clock, seen }
  }

  const count = byRun(10_000, 1_000_000)

  it('row 45: a scrape has bounded series and does not block the loop', async () => {
    const { clock, seen } = tickingClock()
    const { telemetry } = openTelemetry({ ...withoutFile, clock })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (let task = 0; task < count; task++) {
      for (const one of [TaskSubmitted, TaskQueued]) emitTaskEvent(to, one, `t${task}`)
      if (task % 2 === 0) continue
      emitTaskEvent(to, TaskStarted, `t${task}`)
      emitTaskEvent(to, TaskCompleted, `t${task}`, { duration_seconds: 0.5 })
    }
    await telemetry.flush()
    await using endpoint = await telemetry.servePrometheus({ port: 0 })
    const before = seen.turns
    const texts = await Promise.all([textOf(endpoint.url), textOf(endpoint.url)])
    expect(seen.turns - before).toBeGreaterThan(count / 1000)
    for (const text of texts) {
      expect(text.length).toBeLessThan(20_000)
      const series = seriesIn(text)
      expect(series.get(`tasks_submitted_total{${local}}`)).toBe(count)
      expect(series.get(`tasks_completed_total{${local}}`)).toBe(count / 2)
      expect(series.get(`tasks_queued{${local}}`)).toBe(count / 2)
      expect(series.get(`task_duration_seconds_sum{${local}}`)).toBe(count / 4)
    }
    await telemetry.stop()
  })

  it('row 45: a scrape while tasks end counts each task once, also for taskLabels', async () => {
    const { clock } = tickingClock()
    const { telemetry } = openTelemetry({ ...withoutFile, clock })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (let task = 0; task < count; task++) emitTaskEvent(to, TaskStarted, `t${task}`)
    await using bounded = await telemetry.servePrometheus({ port: 0 })
    await using labelled = await telemetry.servePrometheus({ port: 0, taskLabels: true })
    const scraping = [textOf(bounded.url), textOf(labelled.url)]
    for (let task = 0; task < count; task++) {
      emitTaskEvent(to, TaskCompleted, `t${task}`)
      if (task % 500 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    for (const text of await Promise.all(scraping)) {
      let started = 0
      for (const [name, value] of seriesIn(text)) {
        if (name.startsWith('tasks_started_total{')) started += value
      }
      expect(started).toBe(count)
    }
    const series = seriesIn(await textOf(bounded.url))
    expect(series.get(`tasks_completed_total{${local}}`)).toBe(count)
    expect(series.get(`tasks_running{${local}}`)).toBe(0)
    await telemetry.stop()
  })

  it('row 45: more executables than series are allowed count together', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    await telemetry.start()
    for (let task = 0; task < 3000; task++) {
      const attributes = { executable: `program-${task}`, task_type: 'compute' }
      for (const one of [TaskSubmitted, TaskCompleted]) {
        emitTaskEvent({ sink: telemetry, clock }, one, `t${task}`, { attributes })
      }
    }
    await using endpoint = await telemetry.servePrometheus({ port: 0 })
    const series = seriesIn(await textOf(endpoint.url))
    const submitted = [...series].filter(([name]) => name.startsWith('tasks_submitted_total'))
    expect(submitted).toHaveLength(1001)
    expect(series.get('tasks_submitted_total{session_id="s1",overflow="true"}')).toBe(2000)
    await telemetry.stop()
  })

  it('row 45: readers without task labels have few series and exact totals', async () => {
    const [delta, cumulative] = [AggregationTemporality.DELTA, undefined].map(
      (temporality) =>
        new ManualReader(
          temporality === undefined ? {} : { aggregationTemporalitySelector: () => temporality },
        ),
    ) as [ManualReader, ManualReader]
    const metricReaders = [delta, cumulative]
    const { telemetry, clock } = openTelemetry({ ...withoutFile, metricReaders, taskLabels: false })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const pointsOf = async (reader: ManualReader, name: string) => {
      const { resourceMetrics } = await reader.collect()
      const metrics = resourceMetrics.scopeMetrics[0]?.metrics ?? []
      const found = metrics.find(({ descriptor }) => descriptor.name === name)
      return found?.dataPoints.map(({ attributes, value }) => ({ attributes, value })) ?? []
    }
    const labels = { session_id: 's1', backend: 'local', executable: './simulate' }
    const attributes = { ...labels, task_type: 'compute' }
    for (let round = 1; round <= 3; round++) {
      for (let task = 0; task < 100; task++) {
        const uid = `t${round}-${task}`
        for (const one of [TaskSubmitted, TaskStarted]) emitTaskEvent(to, one, uid)
        emitTaskEvent(to, TaskCompleted, uid, { duration_seconds: 2 })
      }
      expect(await pointsOf(delta, 'tasks_completed')).toEqual([{ attributes, value: 100 }])
      const [histogram] = await pointsOf(cumulative, 'task_duration_seconds')
      expect(histogram).toMatchObject({ attributes, value: { count: 100 * round } })
    }
    expect(await pointsOf(delta, 'task_duration_seconds')).toEqual([])
    await telemetry.stop()
  })
})
