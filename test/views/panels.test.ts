import { describe, expect, it } from 'vitest'
import { counts } from '../../src/views/panels/counts.ts'
import { failures } from '../../src/views/panels/failures.ts'
import { names } from '../../src/views/panels/names.ts'
import type { ViewEvent } from '../../src/views/panel.ts'
import { Pass } from '../../src/views/pass.ts'
import { resources } from '../../src/views/panels/resources.ts'
import { run } from '../../src/views/panels/run.ts'
import { lifeOf, viewEvent } from './view-event.ts'

function passOver(events: readonly ViewEvent[]) {
  const pass = new Pass({ run, names, failures, resources })
  for (const event of events) pass.take(event)
  return {
    counts: counts.show(pass.counts),
    run: run.show(pass.states.run),
    names: names.show(pass.states.names, { durations: true }),
    failures: failures.show(pass.states.failures, { limit: 2 }),
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
    const none = { mean: 0, p50: 0, p95: 0, p99: 0, max: 0 }
    expect(shown.names).toEqual([
      {
        name: 'simulate',
        taskType: 'function',
        total: 2,
        running: 0,
        waiting: 0,
        progress: null,
        completed: 2,
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
        failed: 0,
        canceled: 0,
        duration: none,
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

  it('names: a task keeps its first name', () => {
    const shown = passOver([
      viewEvent('TaskCreated', 'a'),
      viewEvent('TaskStarted', 'a', { attributes: { executable: '/bin/true' } }),
    ])
    expect(shown.names).toMatchObject([{ name: 'simulate', total: 1, running: 1 }])
  })
})

describe('failures', () => {
  const failed = (uid: string, error_message: string): ViewEvent =>
    viewEvent('TaskFailed', uid, { attributes: { error_type: 'RangeError', error_message } })

  it('failures: groups by name, type and message, the largest first, with the first task', () => {
    const shown = passOver([
      failed('a', 'other'),
      failed('b', 'bad seed'),
      failed('c', 'bad seed'),
      failed('c', 'bad seed'),
      failed('d', 'third'),
    ])
    expect(shown.failures).toEqual({
      groups: [
        expect.objectContaining({ message: 'bad seed', count: 2, firstTask: 'b' }),
        expect.objectContaining({ message: 'other', count: 1, firstTask: 'a' }),
      ],
      otherGroups: 1,
      ungrouped: 0,
    })
  })

  it.each([
    [['bad seed 17', 'bad seed 18'], 'bad seed <n>'],
    [['took 1.5 s, not 2e-3', 'took 0.25 s, not 10'], 'took <n> s, not <n>'],
    [['cannot read /tmp/a/1.txt', 'cannot read /srv/b/data.csv'], 'cannot read <path>'],
    [['task-0007 in s-7f3a', 'task-12 in s-81bd'], 'task-<n> in s-<id>'],
    [
      ['id 9b2e4c1a-0f3d-4e5a-8b7c-6d5e4f3a2b1c', 'id 00000000-1111-4222-8333-444444444444'],
      'id <id>',
    ],
    [['at 0x7ffe1234 in x64 mode', 'at 0x10 in x64 mode'], null],
    [['bad seed', 'bad seed'], 'bad seed'],
  ])('failures: %j are one cause', (messages, shown) => {
    const events = messages.map((message, at) => failed(`t${at}`, message))
    const { groups } = passOver(events).failures
    if (shown === null) expect(groups).toHaveLength(2)
    else expect(groups).toMatchObject([{ message: shown, count: 2, example: { task: 't0' } }])
  })

  it('failures: beyond 1000 groups failures are only counted, and texts are cut', () => {
    const long = 'x'.repeat(100_000)
    const events = Array.from({ length: 1500 }, (_, at) =>
      failed(`t${at}`, `${letters(at)}${long}`),
    )
    const { failures: shown } = passOver(events)
    expect(shown).toMatchObject({ otherGroups: 998, ungrouped: 500 })
    expect(shown.groups[0]?.message).toHaveLength(2000)
  })
})

/** A different word for each number: digits do not tell failures apart. */
const letters = (number: number): string =>
  Array.from(String(number), (digit) => 'ghijklmnop'[Number(digit)]).join('')

describe('run', () => {
  it('run: the session, its times, and what happened beside its tasks', () => {
    const { run: shown } = passOver([
      viewEvent('SessionStarted', null, { event_time: 90 }),
      viewEvent('tutti.TaskAttempt', 'a', { event_time: 120 }),
      viewEvent('tutti.WorkerLost'),
      viewEvent('tutti.Batch', null, { size: 3 }),
      viewEvent('tutti.Batch', null, { size: 'many' }),
      viewEvent('SessionEnded', null, { event_time: 110, duration_seconds: 19.5 }),
    ])
    expect(shown).toEqual({
      sessionId: 's-1',
      startTime: 90,
      endTime: 110,
      durationSeconds: 19.5,
      lastTime: 120,
      retries: 1,
      workersLost: 1,
      batches: 2,
      batchedRequests: 3,
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

describe('a state', () => {
  it('state of every panel: plain data that a structured clone reproduces', () => {
    const pass = new Pass({ run, names, failures, resources })
    for (const event of lifeOf('a')) pass.take(event)
    const copy = structuredClone({ counts: pass.counts, ...pass.states })
    expect(copy).toEqual({ counts: pass.counts, ...pass.states })
    expect(counts.show(copy.counts)).toEqual(counts.show(pass.counts))
  })
})
