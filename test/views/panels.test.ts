import { describe, expect, it } from 'vitest'
import { prometheusText } from '../../src/cli/export/prometheus.ts'
import { createRunPass } from '../../src/views/all-panels.ts'
import { counts, countSubmitted } from '../../src/views/panels/counts.ts'
import { health } from '../../src/views/panels/health.ts'
import { inference } from '../../src/views/panels/inference.ts'
import { names } from '../../src/views/panels/names.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { Pass } from '../../src/views/pass.ts'
import { resources, showNodes, showNodeSeries } from '../../src/views/panels/resources.ts'
import { run } from '../../src/views/panels/run.ts'
import { lifeOf, viewEvent } from './view-event.ts'

function passOver(events: readonly ViewEvent[]) {
  const pass = new Pass({ run, names, resources })
  for (const event of events) pass.take(event)
  return {
    counts: counts.show(pass.counts),
    run: run.show(pass.states.run),
    names: names.show(pass.states.names, { durations: true }),
    resources: resources.show(pass.states.resources),
  }
}

describe('counts', () => {
  it('counts: totals count each task once per stage', () => {
    const shown = passOver([
      ...lifeOf('a'),
      viewEvent('TaskCreated', 'b'),
      viewEvent('TaskStarted', 'b'),
      viewEvent('TaskFailed', 'c'),
    ])
    expect(shown.counts).toMatchObject({
      tasks: 3,
      submitted: 1,
      started: 2,
      completed: 1,
      failed: 1,
      canceled: 0,
      running: 1,
      open: 1,
      durationCount: 1,
      durationSum: 1,
      events: 8,
    })
  })

  it('counts: repeated events and events after the end change nothing', () => {
    const late = [viewEvent('TaskStarted', 'a'), viewEvent('TaskCanceled', 'a')]
    const shown = passOver([viewEvent('TaskStarted', 'a'), ...lifeOf('a'), ...late])
    expect(shown.counts).toMatchObject({ tasks: 1, started: 1, completed: 1, canceled: 0 })
    expect(shown.counts.running).toBe(0)
  })

  it('counts: a task that has started was submitted, also if that line is damaged', () => {
    const pass = createRunPass()
    const events = [
      ...['TaskCreated', 'TaskSubmitted', 'TaskStarted', 'TaskCompleted'].map((type) =>
        viewEvent(type, 'a'),
      ),
      ...['TaskCreated', 'TaskStarted', 'TaskCompleted'].map((type) => viewEvent(type, 'b')),
    ]
    for (const event of events) pass.take(event)
    expect(countSubmitted(pass.counts.totals)).toBe(2)
    expect(prometheusText(pass)).toMatch(/^tasks_submitted_total\{[^}]*\} 2$/m)
  })

  it('counts: lifecycle events without a task and unknown types count only as events', () => {
    const shown = passOver([viewEvent('TaskCreated'), viewEvent('myapp.Custom', 'a')])
    expect(shown.counts).toMatchObject({ tasks: 0, events: 2 })
    expect(shown.names).toEqual([])
  })
})

describe('names', () => {
  it('names: counts and durations of each executable, in the order of appearance', () => {
    const sort = { executable: '/usr/bin/sort', task_type: 'compute' }
    const shown = passOver([
      ...lifeOf('a'),
      ...lifeOf('b', { duration_seconds: 3 }),
      viewEvent('TaskCreated', 'c', { attributes: sort }),
      viewEvent('TaskStarted', 'c', { attributes: sort }),
    ])
    expect(shown.names).toEqual([
      {
        name: 'simulate',
        taskType: 'function',
        total: 2,
        running: 0,
        waiting: 0,
        progress: null,
        completed: 2,
        reused: 0,
        failed: 0,
        canceled: 0,
        duration: { mean: 2, p50: 1, p95: 3, p99: 3, max: 3 },
      },
      {
        name: '/usr/bin/sort',
        taskType: 'compute',
        total: 1,
        running: 1,
        waiting: 0,
        progress: null,
        completed: 0,
        reused: 0,
        failed: 0,
        canceled: 0,
        duration: null,
      },
    ])
  })

  it('names: a task without a name takes the first name of a later event', () => {
    const unnamed = { attributes: { executable: '' } }
    const shown = passOver([
      viewEvent('TaskCreated', 'a', unnamed),
      viewEvent('TaskStarted', 'a', unnamed),
      viewEvent('TaskCompleted', 'a', { attributes: { executable: 'model-1' } }),
    ])
    expect(shown.names).toMatchObject([{ name: 'model-1', total: 1, running: 0, completed: 1 }])
  })

  it('names: a task whose reused result a later session does not take is no reused one', () => {
    const reused = [
      viewEvent('TaskCreated', 'a'),
      viewEvent('TaskCompleted', 'a', { attributes: { reused: true } }),
    ]
    expect(passOver(reused).names).toMatchObject([{ completed: 1, reused: 1 }])
    const resumed = viewEvent('SessionStarted', null, { attributes: { resumed_from: 'x' } })
    const shown = passOver([...reused, resumed, ...lifeOf('a')])
    expect(shown.names).toMatchObject([{ total: 1, completed: 1, reused: 0 }])
  })

  it('names: a task keeps its first name', () => {
    const shown = passOver([
      viewEvent('TaskCreated', 'a'),
      viewEvent('TaskStarted', 'a', { attributes: { executable: '/bin/true' } }),
    ])
    expect(shown.names).toMatchObject([{ name: 'simulate', total: 1, running: 1 }])
  })
})

describe('nodes', () => {
  it('resources: a node that several backends read is one node', () => {
    const reading = (backend: string, cpu_percent: number): ViewEvent =>
      viewEvent('ResourceUpdate', null, {
        backend,
        node_id: 'n1',
        resource_scope: 'per_node',
        cpu_percent,
      })
    const pass = new Pass({ resources })
    for (const event of [reading('tutti', 10), reading('cluster', 20), reading('cluster', 60)]) {
      pass.take(event)
    }
    expect(resources.show(pass.states.resources)).toHaveLength(2)
    expect(showNodes(pass.states.resources)).toMatchObject([
      { node_id: 'n1', cpu_percent: { last: 60, mean: 30, max: 60 } },
    ])
    expect(showNodeSeries(pass.states.resources)).toHaveLength(1)
  })
})

describe('run', () => {
  it('run: the session, its times, and what happened beside its tasks', () => {
    const { run: shown } = passOver([
      viewEvent('SessionStarted', null, { event_time: 90 }),
      viewEvent('tutti.TaskAttempt', 'a', { event_time: 120 }),
      viewEvent('tutti.WorkerLost'),
      viewEvent('tutti.Batch', null, { size: 3 }),
      viewEvent('tutti.Batch', null, { size: 'many' }),
      viewEvent('SessionEnded', null, {
        event_time: 110,
        duration_seconds: 19.5,
        attributes: { 'tutti.telemetry': { main_cpu_seconds: 0.5, bytes_written: 7, other: 1 } },
      }),
    ])
    expect(shown).toEqual({
      sessionId: 's-1',
      startTime: 90,
      endTime: 110,
      durationSeconds: 19.5,
      sessions: 1,
      sessionStart: 90,
      earlierSeconds: 0,
      lastTime: 120,
      retries: 1,
      workersLost: 1,
      taskCpuSeconds: 0,
      batches: 2,
      batchedRequests: 3,
      telemetryCost: {
        main_cpu_seconds: 0.5,
        thread_cpu_seconds: 0,
        in_place_writes: 0,
        bytes_written: 7,
        spill_bytes: 0,
      },
    })
  })
})

describe('resources', () => {
  it('resources: last, mean and highest reading of each node; unknown ones are left out', () => {
    const update = (node_id: string, cpu_percent: unknown, scope = 'per_node'): ViewEvent =>
      viewEvent('ResourceUpdate', null, { node_id, cpu_percent, resource_scope: scope })
    const { resources: shown } = passOver([
      update('n1', 50),
      update('n1', 100),
      update('n1', null),
      update('n1', 'hot'),
      update('n1', 7, 'per_gpu'),
      update('n2', null),
    ])
    const unknown = { last: null, mean: null, max: null }
    expect(shown).toMatchObject([
      { backend: 'local', node_id: 'n1', cpu_percent: { last: 100, mean: 75, max: 100 } },
      { backend: 'local', node_id: 'n2', cpu_percent: unknown, gpu_percent: unknown },
    ])
  })
})

describe('resources over time', () => {
  it('resources: readings over time are means of stretches that grow with the run', () => {
    const update = (time: number, fields: object): ViewEvent =>
      viewEvent('ResourceUpdate', null, { node_id: 'n1', event_time: time, ...fields })
    const pass = new Pass({ resources })
    for (let time = 0; time < 1000; time++) {
      pass.take(update(time, { cpu_percent: time % 2, resource_scope: 'per_node' }))
      pass.take(update(time, { gpu_percent: 50, gpu_id: 3, resource_scope: 'per_gpu' }))
    }
    const [node] = showNodeSeries(pass.states.resources)
    // 240 stretches of 8 seconds would be enough for 1920 seconds.
    expect(node?.points).toHaveLength(125)
    expect(node?.points[7]).toEqual({ time: 56, values: [0.5, null, null] })
    expect(node?.gpus).toMatchObject([{ gpu_id: 3 }])
    expect(node?.gpus[0]?.points.every(({ values }) => values[0] === 50)).toBe(true)
  })
})

describe('inference', () => {
  it('inference: batches by size and engine, and waits against compute', () => {
    const batch = (size: number, more: object = {}): ViewEvent =>
      viewEvent('tutti.Batch', null, {
        backend: 'llm',
        worker_id: 'llm-0',
        size,
        wait_seconds: 0.5,
        duration_seconds: 2,
        ...more,
      })
    const pass = new Pass({ inference })
    for (const event of [
      batch(1),
      batch(3),
      batch(4, { error_message: 'lost' }),
      batch(9, { worker_id: 'llm-1' }),
      viewEvent('tutti.EngineLost', null, { backend: 'llm', worker_id: 'llm-1' }),
    ]) {
      pass.take(event)
    }
    expect(inference.show(pass.states.inference)).toMatchObject({
      engines: [
        { workerId: 'llm-0', batches: 3, requests: 8, failed: 1, lost: 0 },
        { workerId: 'llm-1', batches: 1, requests: 9, failed: 0, lost: 1 },
      ],
      batches: 4,
      requests: 17,
      sizes: [
        { upTo: 1, batches: 1 },
        { upTo: 2, batches: 0 },
        { upTo: 4, batches: 2 },
        { upTo: 8, batches: 0 },
        { upTo: 16, batches: 1 },
      ],
      largestBatch: 9,
      waitSeconds: 2,
      computeSeconds: 8,
      series: [{ time: 100, values: [17 / 4, 0.5, 2] }],
    })
  })
})

describe('health', () => {
  const at = (event_time: number, type: string, fields: object = {}): ViewEvent =>
    viewEvent(type, null, { event_time, emit_time: event_time, ...fields })
  const poll = (time: number): ViewEvent =>
    at(time, 'ResourceUpdate', { node_id: 'n1', resource_scope: 'per_node' })
  const healthOf = (events: readonly ViewEvent[]) => {
    const pass = new Pass({ health })
    for (const event of events) pass.take(event)
    return health.show(pass.states.health)
  }

  it('health: long series of delays of the event loop keep their maxima', () => {
    const delays = Array.from({ length: 2000 }, (_, time) =>
      at(time, 'ResourceUpdate', { attributes: { loop_delay_ms: time === 777 ? 900 : 5 } }),
    )
    const { loopDelays } = healthOf([...delays, poll(2001)])
    expect(loopDelays.length).toBeLessThan(480)
    expect(loopDelays.filter(({ ms }) => ms !== 5)).toEqual([{ time: 777, ms: 900 }])
    expect(loopDelays.at(-1)?.time).toBeGreaterThan(1990)
  })

  it('health: what was lost, throttled and failed beside the tasks is counted and told', () => {
    const shown = healthOf([
      at(1, 'tutti.WorkerLost', { worker_id: 'w1', reason: 'SIGKILL' }),
      at(2, 'tutti.NodeLost', { node_id: 'n1', reason: 'silent' }),
      at(3, 'tutti.TaskMoved', { node_id: 'n1', tasks: ['a', 'b'] }),
      at(4, 'tutti.BackendThrottled', { reason: 'EAGAIN', limit: 2 }),
      at(5, 'tutti.CheckpointDegraded', { errno: 'ENOSPC' }),
      at(6, 'tutti.CheckpointRecovered', { lost: 7 }),
      at(7, 'tutti.CheckpointDegraded', { errno: 'EIO' }),
      at(8, 'tutti.SubscriberError', { subscriber: 'mine', message: 'boom', count: 3 }),
      at(9, 'TaskCreated', { emit_time: 11 }),
    ])
    expect(shown).toMatchObject({
      workersLost: 1,
      nodesLost: 1,
      tasksMoved: 2,
      throttled: 1,
      lostLines: 7,
      isDegraded: true,
      subscriberErrors: 3,
      maxDelay: 2,
      gapCount: 0,
    })
    expect(shown.warningCounts).toMatchObject({ 'tutti.CheckpointDegraded': 2 })
    expect(shown.warnings[0]).toEqual({
      time: 1,
      type: 'tutti.WorkerLost',
      subject: 'w1',
      text: 'SIGKILL',
    })
  })

  it('health: a time without any event, several polls long, is a gap', () => {
    const polls = Array.from({ length: 5 }, (_, turn) => poll(100 + 5 * turn))
    const shown = healthOf([...polls, poll(180), at(205, 'TaskCreated'), at(300, 'TaskCreated')])
    expect(shown).toMatchObject({ gapCount: 2, gapSeconds: 155 })
    expect(shown.gaps).toEqual([
      { from: 120, to: 180 },
      { from: 205, to: 300 },
    ])
    expect(healthOf([at(1, 'TaskCreated'), at(5000, 'TaskCreated')]).gapCount).toBe(0)
  })

  it('health: thousands of warnings are counted, and the latest ones kept', () => {
    const many = Array.from({ length: 5000 }, (_, time) => at(time, 'tutti.StaleResult'))
    const shown = healthOf(many)
    expect(shown).toMatchObject({ staleResults: 5000 })
    expect(shown.warnings).toHaveLength(200)
    expect(shown.warnings.at(-1)).toMatchObject({ time: 4999 })
  })
})

describe('a state', () => {
  it('state of every panel: plain data that a structured clone reproduces', () => {
    const pass = createRunPass()
    for (const event of lifeOf('a')) pass.take(event)
    const copy = structuredClone({ counts: pass.counts, ...pass.states })
    expect(copy).toEqual({ counts: pass.counts, ...pass.states })
    expect(counts.show(copy.counts)).toEqual(counts.show(pass.counts))
  })
})
