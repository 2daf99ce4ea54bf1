import {
  AggregationTemporality,
  AggregationType,
  InstrumentType,
  MetricReader,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics'
import { describe, expect, it } from 'vitest'
import { NodeDrained, NodeJoined, NodeLost } from '../../src/events/library-events.ts'
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
import { systemClock } from '../../src/foundation/clock.ts'
import { metricsIn, openTelemetry, emitTaskEvent, turn, withoutFile } from './open-telemetry.ts'

class ManualReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

const deltaReader = (): ManualReader =>
  new ManualReader({ aggregationTemporalitySelector: () => AggregationTemporality.DELTA })

/** The sum of an instrument's points, of counts for the histogram. */
function sumOf({ scopeMetrics }: ResourceMetrics, name: string): number {
  const metric = scopeMetrics[0]?.metrics.find(({ descriptor }) => descriptor.name === name)
  let sum = 0
  for (const { value } of metric?.dataPoints ?? []) {
    sum += typeof value === 'number' ? value : value.count
  }
  return sum
}

const update = (fields: object) =>
  makeEvent(ResourceUpdate, { session_id: 's1', backend: 'local', node_id: 'n1', ...fields })

describe('readMetrics', () => {
  it('readMetrics: has every counter from the start, with zeros, and no gauge', () => {
    const { telemetry } = openTelemetry(withoutFile)
    expect(telemetry.readMetrics()).toEqual({
      tasks_submitted: 0,
      tasks_started: 0,
      tasks_completed: 0,
      tasks_failed: 0,
      tasks_canceled: 0,
      tasks_running: 0,
      tasks_queued: 0,
      task_duration_seconds_count: 0,
      task_duration_seconds_sum: 0,
      task_queue_seconds_count: 0,
      task_queue_seconds_sum: 0,
    })
  })

  it('readMetrics: equals the metric line of the checkpoint', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const one of [TaskSubmitted, TaskStarted]) emitTaskEvent(to, one, 'a')
    emitTaskEvent(to, TaskCompleted, 'a', { duration_seconds: 1.5 })
    telemetry.emit(update({ cpu_percent: 12.5 }))
    await clock.advance(1000)
    await telemetry.stop()
    const [line, ...more] = metricsIn(folder)
    expect(more).toEqual([])
    const { section, checkpoint_time: time, ...values } = line ?? {}
    expect([section, time]).toEqual(['metric', 1_700_000_001])
    expect(values).toEqual(telemetry.readMetrics())
    expect(values).toMatchObject({ task_duration_seconds_sum: 1.5, node_cpu_utilization: 12.5 })
  })

  it('readMetrics: only tasks that ran to DONE or FAILED have a duration', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const uid of ['done', 'failed', 'canceled']) emitTaskEvent(to, TaskStarted, uid)
    emitTaskEvent(to, TaskCompleted, 'done', { duration_seconds: 2 })
    emitTaskEvent(to, TaskFailed, 'failed', { duration_seconds: 3 })
    emitTaskEvent(to, TaskCanceled, 'canceled', { duration_seconds: 5 })
    emitTaskEvent(to, TaskCompleted, 'never ran', { duration_seconds: 0 })
    emitTaskEvent(to, TaskCanceled, 'canceled before', { duration_seconds: 0 })
    expect(telemetry.readMetrics()).toMatchObject({
      tasks_running: 0,
      tasks_completed: 2,
      tasks_failed: 1,
      tasks_canceled: 2,
      task_duration_seconds_count: 2,
      task_duration_seconds_sum: 5,
    })
    await telemetry.stop()
  })

  it('readMetrics: only the first TaskQueued and TaskStarted move the queue', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const queue = (): unknown[] => {
      const { tasks_queued, task_queue_seconds_count, task_queue_seconds_sum } =
        telemetry.readMetrics()
      return [tasks_queued, task_queue_seconds_count, task_queue_seconds_sum]
    }
    for (const uid of ['started', 'canceled', 'open']) emitTaskEvent(to, TaskQueued, uid)
    emitTaskEvent(to, TaskQueued, 'started')
    expect(queue()).toEqual([3, 0, 0])
    await clock.advance(1500)
    emitTaskEvent(to, TaskStarted, 'started')
    emitTaskEvent(to, TaskStarted, 'never queued')
    await clock.advance(1500)
    // A second attempt moves nothing.
    for (const one of [TaskQueued, TaskStarted]) emitTaskEvent(to, one, 'started')
    expect(queue()).toEqual([2, 1, 1.5])
    emitTaskEvent(to, TaskCompleted, 'started')
    // A task that ends in the queue leaves it without a start.
    emitTaskEvent(to, TaskCanceled, 'canceled')
    expect(queue()).toEqual([1, 1, 1.5])
    await telemetry.stop()
    expect(queue()).toEqual([0, 1, 1.5])
  })

  it('readMetrics: negative and non-finite durations count as 0', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (const [uid, seconds] of [Number.NaN, -1, Infinity, 4].entries()) {
      emitTaskEvent(to, TaskStarted, `t${uid}`)
      emitTaskEvent(to, TaskCompleted, `t${uid}`, { duration_seconds: seconds })
    }
    const { task_duration_seconds_sum: sum } = telemetry.readMetrics()
    expect(sum).toBe(4)
    expect(telemetry.summary().duration.max).toBe(4)
    await telemetry.stop()
  })
})

describe('node gauges', () => {
  it('node gauges: hold the last reading of each node; those of a GPU do not count', async () => {
    const reader = new ManualReader()
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [reader] })
    await telemetry.start()
    telemetry.emit(update({ cpu_percent: 10, memory_percent: 40, gpu_percent: 70 }))
    telemetry.emit(update({ gpu_id: 0, gpu_percent: 99 }))
    telemetry.emit(update({ gpu_id: 1, gpu_percent: 1, cpu_percent: 77 }))
    expect(telemetry.readMetrics()).toMatchObject({
      node_cpu_utilization: 10,
      node_memory_utilization: 40,
      node_gpu_utilization: 70,
    })
    // Unknown readings keep the last known ones.
    telemetry.emit(update({ cpu_percent: 20 }))
    telemetry.emit(update({ cpu_percent: null }))
    telemetry.emit(update({ backend: 'other', cpu_percent: 90 }))
    const latest = telemetry.readMetrics()
    expect(latest).toMatchObject({ node_cpu_utilization: 90 })
    expect(latest).not.toHaveProperty('node_memory_utilization')
    expect(latest).not.toHaveProperty('node_gpu_utilization')
    const { resourceMetrics } = await reader.collect()
    const cpu = resourceMetrics.scopeMetrics[0]?.metrics.find(
      ({ descriptor }) => descriptor.name === 'node_cpu_utilization',
    )
    expect(cpu?.dataPoints.map(({ attributes, value }) => [attributes, value])).toEqual([
      [{ session_id: 's1', backend: 'local', node_id: 'n1' }, 20],
      [{ session_id: 's1', backend: 'other', node_id: 'n1' }, 90],
    ])
    await telemetry.stop()
    const [node] = telemetry.summary().resources
    expect(node).toMatchObject({
      backend: 'local',
      node_id: 'n1',
      cpu_percent: { last: 20, mean: 15, max: 20 },
      gpu_percent: { last: 70, mean: 70, max: 70 },
    })
  })

  it('node gauges: a node that left has none, until it is sampled again', async () => {
    const reader = new ManualReader()
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [reader] })
    await telemetry.start()
    const shown = async (): Promise<unknown[]> => {
      const { resourceMetrics } = await reader.collect()
      const metrics = resourceMetrics.scopeMetrics[0]?.metrics ?? []
      const cpu = metrics.find(({ descriptor }) => descriptor.name === 'node_cpu_utilization')
      const series = cpu?.dataPoints.map(({ attributes: { backend, node_id } }) => [
        backend,
        node_id,
      ])
      return [telemetry.readMetrics()['node_cpu_utilization'], ...(series ?? [])]
    }
    const about = (backend: string, node_id: string) => ({ session_id: 's1', backend, node_id })
    const [own, one, two] = [about('tutti', 'host'), about('far', 'n1'), about('far', 'n2')]
    telemetry.emit(makeEvent(ResourceUpdate, { ...own, cpu_percent: 1 }))
    expect(await shown()).toEqual([1, ['tutti', 'host']])
    // The session's own host is sampled only while no backend has a node.
    telemetry.emit(makeEvent(NodeJoined, one))
    expect(await shown()).toEqual([undefined])
    telemetry.emit(makeEvent(ResourceUpdate, { ...one, cpu_percent: 2 }))
    telemetry.emit(makeEvent(ResourceUpdate, { ...two, cpu_percent: 3 }))
    telemetry.emit(makeEvent(NodeLost, { ...two, reason: 'no heartbeat', tasks: [] }))
    expect(await shown()).toEqual([undefined, ['far', 'n1']])
    telemetry.emit(makeEvent(NodeDrained, one))
    expect(await shown()).toEqual([undefined])
    telemetry.emit(makeEvent(ResourceUpdate, { ...two, cpu_percent: 4 }))
    expect(await shown()).toEqual([4, ['far', 'n2']])
    await telemetry.stop()
    expect(telemetry.summary().resources).toHaveLength(3)
  })

  it('node gauges: are differences for a reader with delta temporality', async () => {
    const reader = deltaReader()
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [reader] })
    await telemetry.start()
    const seen: number[] = []
    for (const cpu of [50, 20, 20, 75]) {
      telemetry.emit(update({ cpu_percent: cpu }))
      const { resourceMetrics } = await reader.collect()
      seen.push(sumOf(resourceMetrics, 'node_cpu_utilization'))
    }
    expect(seen).toEqual([50, -30, 0, 55])
    await telemetry.stop()
  })
})

describe('any metric reader', () => {
  it('metric reader: sees tasks start and end, with delta and cumulative temporality', async () => {
    const [delta, cumulative] = [deltaReader(), new ManualReader()]
    const open = openTelemetry({ ...withoutFile, metricReaders: [delta, cumulative] })
    const { telemetry, clock } = open
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const running: [number, number][] = []
    const look = async (): Promise<void> => {
      const [a, b] = await Promise.all([delta.collect(), cumulative.collect()])
      running.push([
        sumOf(a.resourceMetrics, 'tasks_running'),
        sumOf(b.resourceMetrics, 'tasks_running'),
      ])
    }
    await look()
    for (const uid of ['a', 'b']) emitTaskEvent(to, TaskStarted, uid)
    await look()
    emitTaskEvent(to, TaskCompleted, 'a')
    await look()
    emitTaskEvent(to, TaskCanceled, 'b')
    await look()
    await look()
    expect(running).toEqual([
      [0, 0],
      [2, 2],
      [-1, 1],
      [-1, 0],
      [0, 0],
    ])
    await telemetry.stop()
  })

  it('metric reader: overlapping collections give exact totals while tasks end', async () => {
    const tasks = 25_000
    const reader = new ManualReader()
    const clock = systemClock
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [reader], clock })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (let task = 0; task < tasks; task++) {
      emitTaskEvent(to, TaskCreated, `t${task}`)
      emitTaskEvent(to, TaskSubmitted, `t${task}`)
      emitTaskEvent(to, TaskStarted, `t${task}`)
    }
    const collecting = [reader.collect(), reader.collect(), reader.collect()]
    await turn()
    for (let task = 0; task < tasks; task++) emitTaskEvent(to, TaskCompleted, `t${task}`)
    const results = await Promise.all(collecting)
    for (const { resourceMetrics, errors } of results) {
      expect(errors).toEqual([])
      expect(sumOf(resourceMetrics, 'tasks_submitted')).toBe(tasks)
      expect(sumOf(resourceMetrics, 'tasks_started')).toBe(tasks)
      const [done, left] = ['tasks_completed', 'tasks_running'].map((name) =>
        sumOf(resourceMetrics, name),
      )
      expect((done ?? 0) + (left ?? 0)).toBe(tasks)
    }
    await telemetry.stop()
  })

  it('metric reader: a dropped kind of instrument is not collected', async () => {
    const reader = new ManualReader({
      aggregationSelector: (type: InstrumentType) => ({
        type: type === InstrumentType.HISTOGRAM ? AggregationType.DROP : AggregationType.DEFAULT,
      }),
    })
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [reader] })
    await telemetry.start()
    const { resourceMetrics } = await reader.collect()
    const names = resourceMetrics.scopeMetrics[0]?.metrics.map(({ descriptor }) => descriptor.name)
    expect(names).toHaveLength(10)
    expect(names).not.toContain('task_duration_seconds')
    await telemetry.stop()
  })

  it('metric reader: is shut down once at stop, without a flush before', async () => {
    const calls: string[] = []
    class CountingReader extends MetricReader {
      protected override async onForceFlush(): Promise<void> {
        calls.push('flush')
      }
      protected override async onShutdown(): Promise<void> {
        calls.push('shutdown')
      }
    }
    const { telemetry } = openTelemetry({ ...withoutFile, metricReaders: [new CountingReader()] })
    await telemetry.start()
    await telemetry.stop()
    expect(calls).toEqual(['shutdown'])
  })
})

describe('summary', () => {
  it('summary: has tasks, durations and resources', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    expect(telemetry.summary()).toMatchObject({ session_id: 's1', duration_seconds: 0 })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    for (let task = 1; task <= 100; task++) {
      emitTaskEvent(to, TaskSubmitted, `t${task}`)
      emitTaskEvent(to, TaskStarted, `t${task}`)
      emitTaskEvent(to, TaskCompleted, `t${task}`, { duration_seconds: task / 10 })
    }
    emitTaskEvent(to, TaskSubmitted, 'open')
    emitTaskEvent(to, TaskStarted, 'open')
    await clock.advance(4000)
    const expected = {
      session_id: 's1',
      duration_seconds: 4,
      tasks: { submitted: 101, completed: 100, failed: 0, canceled: 0, running: 1 },
      duration: { mean: expect.closeTo(5.05) as number, p50: 5, p95: 9.5, p99: 9.9, max: 10 },
      late_results: 0,
      resources: [],
      telemetry: {
        main_cpu_seconds: expect.any(Number) as number,
        thread_cpu_seconds: 0,
        in_place_writes: 0,
        bytes_written: 0,
        spill_bytes: 0,
      },
    }
    expect(telemetry.summary()).toEqual(expected)
    await telemetry.stop()
    await clock.advance(9000)
    expect(telemetry.summary().duration_seconds).toBe(4)
  })
})
