import { expect, it } from 'vitest'
import type { QuerySource } from '../../../src/dashboard/queries/query-source.ts'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventsOf, type SyntheticTask } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { allTasks, ask, sourceOf } from './query-run.ts'

const node = { nodeId: 'n1', cores: 2, workers: 2 }

/** Two workers: one runs for 60 s, the other failed a task and is idle; a third task waits. */
const tasks: SyntheticTask[] = [
  { uid: 'long', name: 'simulate', created: 0, start: 1, worker: 'n1/local/w1' },
  {
    uid: 'broken',
    name: 'train',
    created: 0,
    start: 2,
    end: 10,
    worker: 'n1/local/w2',
    endType: 'TaskFailed',
  },
  { uid: 'after', name: 'score', created: 0, dependencies: ['long'] },
  { uid: 'done', name: 'simulate', created: 0, start: 10, end: 20, worker: 'n1/local/w2' },
]

const running = (): ViewEvent[] =>
  eventsOf({ nodes: [node], tasks, end: 60 })
    .filter(({ event_type: type }) => type !== 'SessionEnded')
    .map((event) =>
      event.event_type === 'TaskFailed'
        ? {
            ...event,
            error_type: 'RangeError',
            attributes: { ...event.attributes, error_message: 'bad seed 17', stderr_tail: 'oh no' },
          }
        : event,
    )

const live = () => sourceOf(running(), { state: 'running', now: 61 })

it('the header counts the tasks of a running session by state', async () => {
  const head = await ask(live(), 'head', {})
  expect(head).toMatchObject({ state: 'running', startTime: 0, endTime: 61, durationSeconds: 61 })
  expect(head.counts).toEqual({
    done: 1,
    failed: 1,
    canceled: 0,
    running: 1,
    queued: 0,
    waiting: 1,
    interrupted: 0,
    total: 4,
  })
  expect(head.verdict).toContain('The run is in progress')
  expect(head.colours).toEqual({ simulate: 0, train: 1, score: 2 })
  expect(head.rate.values.reduce((sum, one) => sum + one * head.rate.bucketSeconds, 0)).toBeCloseTo(
    2,
  )
})

it('a record whose writer is gone has interrupted tasks, and none that run', async () => {
  const source = sourceOf(running())
  const head = await ask(source, 'head', {})
  expect(head.counts).toMatchObject({ running: 0, queued: 0, interrupted: 1, waiting: 1 })
  expect(head.etaSeconds).toBeNull()
  const { rows } = await ask(source, 'tasks', allTasks)
  expect(rows.map(({ uid, state }) => [uid, state])).toEqual([
    ['long', 'INTERRUPTED'],
    ['broken', 'FAILED'],
    ['after', 'NOT BEGUN'],
    ['done', 'DONE'],
  ])
  const { blocks } = await ask(source, 'stream', { range: {}, cells: 100 })
  expect(blocks.find(({ task }) => task === 'long')?.outcome).toBe('interrupted')
  const { workers } = await ask(source, 'workers', {})
  expect(workers.every(({ state }) => state !== 'busy')).toBe(true)
  const drawer = await ask(source, 'task', { uid: 'long' })
  expect(drawer).toMatchObject({ isInterrupted: true, state: 'INTERRUPTED' })
  const { names } = await ask(source, 'progress', {})
  expect(names.every((name) => name.running === 0 && name.etaSeconds === null)).toBe(true)
})

it('two clicks lead to the longest running task', async () => {
  const part = { ...allTasks, q: 'state:running', sort: 'ran', isDescending: true } as const
  const { rows, matching, total } = await ask(live(), 'tasks', part)
  expect(rows.map(({ uid, ran }) => [uid, ran])).toEqual([['long', 60]])
  expect([matching, total]).toEqual([1, 4])
})

it('two clicks lead to the cause of a failure: its group, and its task', async () => {
  const source = live()
  const { groups } = await ask(source, 'failures', {})
  expect(groups).toMatchObject([
    { errorType: 'RangeError', message: 'bad seed 17', count: 1, tasks: ['broken'] },
  ])
  expect(groups[0]?.example.join('\n')).toContain('oh no')
  // The heading of the group says this, with the count of the selected time.
  expect(groups[0]?.example.join('\n')).not.toContain('1 x')
  expect(groups[0]?.example[0]).toMatch(/^\S/)
  const drawer = await ask(source, 'task', { uid: groups[0]?.tasks[0] ?? '' })
  expect(drawer.error.join('\n')).toContain('RangeError "bad seed 17"')
  expect(drawer.stderr).toEqual({ text: 'oh no', isCut: false })
})

it('two clicks lead to an idle worker and to a full node', async () => {
  const { workers, nodes } = await ask(live(), 'workers', {})
  expect(workers).toMatchObject([
    { id: 'n1/local/w1', state: 'busy', task: 'long', taskSeconds: 60, idleSeconds: null },
    { id: 'n1/local/w2', state: 'idle', task: null, idleSeconds: 41, attempts: 2, failed: 1 },
  ])
  expect(nodes).toMatchObject([{ nodeId: 'n1', state: 'here', busySlots: 1, isFull: false }])
  const started = viewEvent('TaskStarted', 'more', {
    event_time: 61,
    node_id: 'n1',
    attributes: { worker_id: 'n1/local/w2' },
  })
  const full = sourceOf([...running(), started], { state: 'running', now: 61 })
  const now = await ask(full, 'workers', {})
  expect(now.nodes).toMatchObject([{ busySlots: 2, isFull: true }])
})

it('two clicks lead to what a task waits for', async () => {
  const source = live()
  const { rows } = await ask(source, 'tasks', { ...allTasks, q: 'state:created' })
  expect(rows.map(({ uid }) => uid)).toEqual(['after'])
  const drawer = await ask(source, 'task', { uid: 'after' })
  expect(drawer.waitsFor).toEqual(['long'])
  expect(drawer.dependencies).toEqual([{ uid: 'long', name: 'simulate', state: 'RUNNING' }])
  expect(drawer.story.join('\n')).toContain('waits for long')
  const other = await ask(source, 'task', { uid: 'long' })
  expect(other.dependents.map(({ uid }) => uid)).toEqual(['after'])
})

it('the stream places each attempt in a row of its worker, with its phases', async () => {
  const { rows, blocks, cells, range } = await ask(live(), 'stream', { range: {}, cells: 100 })
  expect(rows.map(({ label }) => label)).toEqual(['n1/local/w1', 'n1/local/w2'])
  expect(range).toEqual({ from: 0, to: 61 })
  expect(cells).toEqual([])
  expect(
    blocks.map(({ task, row, start, end, outcome }) => [task, row, start, end, outcome]),
  ).toEqual([
    ['long', 0, 1, 61, 'running'],
    ['broken', 1, 2, 10, 'failed'],
    ['done', 1, 10, 20, 'completed'],
  ])
  expect(blocks[0]?.phases).toEqual([
    { kind: 'starting', from: 0, to: 1 },
    { kind: 'running', from: 1, to: 61 },
  ])
  // The task was queued while another one ran in its row.
  expect(blocks[2]?.phases).toEqual([{ kind: 'running', from: 10, to: 20 }])
})

it('the brush and the name select what all panels show', async () => {
  const source = live()
  const filter = { from: 12, to: 16 }
  const inside = await ask(source, 'inside', { filter })
  expect(inside.names).toEqual([
    { name: 'simulate', count: 2, failures: 0, seconds: 8, p50: 10, p95: 60, max: 60 },
  ])
  const selected = await ask(source, 'tasks', {
    ...allTasks,
    filter: { ...filter, name: 'simulate' },
  })
  expect(selected.rows.map(({ uid }) => uid)).toEqual(['long', 'done'])
  const { names } = await ask(source, 'progress', { filter: { from: 3, to: 9 } })
  expect(names.map(({ name, total, failed }) => [name, total, failed])).toEqual([
    ['simulate', 1, 0],
    ['train', 1, 1],
    ['score', 1, 0],
  ])
  const later = await ask(source, 'failures', { filter: { from: 11 } })
  expect(later.groups).toEqual([])
})

it('the graph shows single tasks with the critical path, and names above 200 tasks', async () => {
  const chain: SyntheticTask[] = [
    { uid: 'a', created: 0, start: 0, end: 5 },
    { uid: 'b', created: 0, start: 0, end: 1, worker: 'n1/local/w2' },
    { uid: 'c', created: 0, ready: 5, start: 5, end: 9, dependencies: ['a', 'b'] },
  ]
  const small = await ask(sourceOf(eventsOf({ nodes: [node], tasks: chain, end: 9 })), 'graph', {})
  expect(small).toMatchObject({ isCollapsed: false, criticalSeconds: 9 })
  expect(small.nodes.map(({ id, depth, isCritical }) => [id, depth, isCritical])).toEqual([
    ['a', 0, true],
    ['b', 0, false],
    ['c', 1, true],
  ])
  expect(small.edges).toEqual([
    { from: 'a', to: 'c', count: 1, isCritical: true },
    { from: 'b', to: 'c', count: 1, isCritical: false },
  ])
  const many = Array.from({ length: 150 }, (_, at): SyntheticTask[] => [
    { uid: `x${at}`, name: 'first', created: at, start: at, end: at + 1 },
    {
      uid: `y${at}`,
      name: 'second',
      created: at,
      ready: at + 1,
      start: at + 1,
      end: at + 2,
      dependencies: [`x${at}`],
      worker: 'n1/local/w2',
    },
  ])
  const source = sourceOf(eventsOf({ nodes: [node], tasks: many.flat(), end: 160 }))
  const large = await ask(source, 'graph', {})
  expect(large.nodes.map(({ id, tasks: count }) => [id, count])).toEqual([
    ['first', 150],
    ['second', 150],
  ])
  expect(large.edges).toMatchObject([{ from: 'first', to: 'second', count: 150 }])
  const part = await ask(source, 'graph', { filter: { from: 0, to: 10 } })
  expect(part.isCollapsed).toBe(false)
  expect(part.nodes.length).toBeLessThanOrEqual(200)
})

it('a time in which nothing ran is folded, and named if it is between two sessions', async () => {
  const first = eventsOf({
    nodes: [node],
    tasks: [{ uid: 'a', start: 0, end: 10 }],
    end: 10,
  })
  const second = eventsOf({
    nodes: [],
    tasks: [{ uid: 'b', created: 1000, start: 1000, end: 1010 }],
    end: 1010,
  }).map((event) =>
    event.event_type === 'SessionStarted'
      ? { ...event, event_time: 1000, attributes: { ...event.attributes, resumed_from: 'first' } }
      : event,
  )
  const { folds } = await ask(sourceOf([...first, ...second]), 'head', {})
  expect(folds).toEqual([{ from: 10, to: 1000, reason: 'between two sessions of the run' }])
  const idle = eventsOf({
    nodes: [node],
    tasks: [
      { uid: 'a', start: 0, end: 10 },
      { uid: 'b', start: 50, end: 60 },
    ],
    end: 61,
  })
  const other = await ask(sourceOf(idle), 'head', {})
  expect(other.folds).toEqual([{ from: 10, to: 50, reason: 'nothing ran' }])
})

it('events are selected by the query bar, and numbers of the application are plotted', async () => {
  const mine = [1, 2, 3].map((step) =>
    viewEvent('mine.Loss', 'long', { event_time: 30 + step, value: 1 / step, label: 'x' }),
  )
  const source = sourceOf([...running(), ...mine], { state: 'running', now: 61 })
  const all = await ask(source, 'events', { q: '', limit: 3 })
  expect(all.events.map(({ type, time }) => [type, time])).toEqual([
    ['mine.Loss', 33],
    ['mine.Loss', 32],
    ['mine.Loss', 31],
  ])
  expect(all.plots).toEqual([
    { title: 'mine.Loss value', times: [31, 32, 33], values: [1, 0.5, 1 / 3] },
  ])
  expect(all.notShown).toMatch(/^Not shown: \d+ older events\.$/)
  const later = sourceOf([...running(), ...mine], { events: mine })
  expect((await ask(later, 'events', { q: '', limit: 3 })).notShown).toMatch(
    /^Only the latest 3 of \d+ events are searched\.$/,
  )
  const failed = await ask(source, 'events', { q: 'type:TaskFailed name:/^tra/ dur>2s', limit: 10 })
  expect(failed.events.map(({ task, name }) => [task, name])).toEqual([['broken', 'train']])
  const wrong = await ask(source, 'events', { q: 'tpye:x', limit: 10 })
  expect(wrong.problem).toContain('"tpye": the keys are task, name')
})

it('nodes are in the order of their numbers, however busy they are', async () => {
  const readings = [10, 2, 1].map((number, at) =>
    viewEvent('ResourceUpdate', null, {
      event_time: at,
      node_id: `n${number}`,
      resource_scope: 'per_node',
      cpu_percent: 9 * number,
      memory_percent: 10,
    }),
  )
  const { nodes } = await ask(sourceOf(readings), 'resources', { range: {} })
  expect(nodes.map(({ nodeId }) => nodeId)).toEqual(['n1', 'n2', 'n10'])
})

it('resources and health show what the record measured and reported', async () => {
  const poll = (time: number, cpu: number): ViewEvent =>
    viewEvent('ResourceUpdate', null, {
      event_time: time,
      node_id: 'n1',
      resource_scope: 'per_node',
      cpu_percent: cpu,
      memory_percent: 10,
    })
  const gpu = viewEvent('ResourceUpdate', null, {
    event_time: 5,
    node_id: 'n1',
    resource_scope: 'per_gpu',
    gpu_id: 0,
    gpu_percent: 80,
  })
  const lost = viewEvent('tutti.NodeLost', null, {
    event_time: 20,
    node_id: 'n1',
    reason: 'silent',
  })
  const events = [
    viewEvent('SessionStarted', null, { event_time: 0 }),
    poll(5, 50),
    gpu,
    poll(10, 100),
    lost,
  ]
  const source = sourceOf(events, { missing: ['3 lines skipped'] })
  const { nodes } = await ask(source, 'resources', { range: {} })
  expect(nodes).toEqual([
    {
      nodeId: 'n1',
      backend: 'local',
      hasLeft: true,
      times: [5, 10],
      cpu: [50, 100],
      memory: [10, 10],
      gpus: [{ id: 0, percent: [80, null] }],
    },
  ])
  const part = await ask(source, 'resources', { range: { from: 6 } })
  expect(part.nodes[0]?.times).toEqual([10])
  const health = await ask(source, 'health', {})
  expect(health.warnings).toEqual([
    { time: 20, type: 'tutti.NodeLost', subject: 'n1', text: 'silent' },
  ])
  expect(health.facts).toContainEqual({ title: 'nodes lost', value: '1', isBad: true })
  expect(health.facts).toContainEqual({ title: 'record', value: '3 lines skipped', isBad: true })
  expect(health.facts.filter(({ value }) => value === 'complete')).toEqual([])
  const { warnings } = await ask(source, 'workers', {})
  expect(warnings).toEqual(health.warnings)
})

it('health shows the delays of the event loop, and what the telemetry tells', async () => {
  const poll = (event_time: number, loop_delay_ms: number): ViewEvent =>
    viewEvent('ResourceUpdate', null, {
      event_time,
      node_id: 'n1',
      resource_scope: 'per_node',
      attributes: { loop_delay_ms },
    })
  const events = [viewEvent('SessionStarted', null, { event_time: 0 }), poll(5, 2.5), poll(10, 80)]
  const telemetry = { droppedEvents: 3, lostLines: 0, inPlaceWrites: 7 }
  const view = await ask(sourceOf(events, { telemetry, state: 'running' }), 'health', {})
  expect(view.loopLag).toEqual({ times: [5, 10], ms: [2.5, 80] })
  expect(view.facts).toContainEqual({
    title: 'events dropped by telemetry',
    value: '3',
    isBad: true,
  })
  expect(view.facts).toContainEqual({ title: 'writes in place', value: '7', isBad: false })
  const ended = await ask(sourceOf(events), 'health', {})
  expect(ended.facts.map(({ title }) => title)).not.toContain('writes in place')
})

it('the stream says how many closures of a worker are shown at a time', async () => {
  const placed = Array.from({ length: 7 }, (_, at) => ({
    uid: `t${at}`,
    start: 1 + at / 100,
    end: 9,
    worker: 'n1/local/main',
  }))
  const source = sourceOf(eventsOf({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks: placed, end: 10 }))
  const { rows, blocks, notShown } = await ask(source, 'stream', { range: {}, cells: 100 })
  expect([rows.length, blocks.length]).toEqual([4, 4])
  expect(notShown).toBe(
    'Not shown: 3 attempts. At most 4 rows per worker show closures and prompts.',
  )
})

it('the workers of the stream and of the table are in the order of their numbers', async () => {
  const ids = ['main', 'w10', 'w2', 'w1', 'w9'].map((worker) => `n1/local/${worker}`)
  const nodes = [{ nodeId: 'n1', cores: 16 }]
  const runOf = (count: number): QuerySource => {
    const placed = Array.from({ length: count }, (_, at) => {
      return { uid: `t${at}`, start: at, end: at + 1, worker: ids[at % 5] ?? '' }
    })
    return sourceOf(eventsOf({ nodes, tasks: placed, end: count }))
  }
  const source = runOf(5)
  const expected = ['w1', 'w2', 'w9', 'w10', 'main'].map((worker) => `n1/local/${worker}`)
  // Single attempts, and cells of many.
  for (const run of [source, runOf(1500)]) {
    const { rows } = await ask(run, 'stream', { range: {}, cells: 100 })
    expect(rows.map(({ label }) => label)).toEqual(expected)
  }
  const { workers } = await ask(source, 'workers', {})
  expect(workers.map(({ id }) => id)).toEqual(['n1/local/main', ...expected.slice(0, -1)])
})

it('the stream of many workers and of long names fits into an answer', async () => {
  const start = 1_790_000_000.123457
  const many = Array.from({ length: 64 * 110 }, (_, at) => ({
    uid: `t${at}`,
    start: start + Math.floor(at / 64) + (at % 7) / 9,
    end: start + Math.floor(at / 64) + 0.987654,
    worker: `n1/local/w${at % 64}`,
  }))
  const long = Array.from({ length: 1100 }, (_, at) => ({
    uid: `t${at}-${'x'.repeat(180)}`,
    name: '大'.repeat(180),
    start: start + at,
    end: start + at + 0.5,
  }))
  for (const placed of [many, long]) {
    const run = { nodes: [{ nodeId: 'n1', cores: 64 }], tasks: placed, end: start + 2000 }
    const range = { from: start, to: (placed.at(-1)?.end ?? 0) + 1 }
    const view = await ask(sourceOf(eventsOf(run)), 'stream', { range, cells: 4000 })
    expect(view.cells.length).toBeGreaterThan(1000)
    expect(Buffer.byteLength(JSON.stringify(view))).toBeLessThan(524_288)
  }
})
