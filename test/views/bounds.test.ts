import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRunPass, type RunPass } from '../../src/views/all-panels.ts'
import { bounds, type BoundsView } from '../../src/views/bounds/bounds.ts'
import { graph } from '../../src/views/panels/graph.ts'
import { assertProperty } from '../property.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { anyEvents, toEvent } from './any-events.ts'
import { eventsOf, passOver, type SyntheticRun, type SyntheticTask } from './synthetic-run.ts'
import { viewEvent } from './view-event.ts'

const boundsOf = ({ counts, states }: RunPass): BoundsView =>
  bounds.show(states.bounds, { counts, ...states })
const boundsOfRun = (run: SyntheticRun): BoundsView => boundsOf(passOver(eventsOf(run)))

const nothing = {
  ran: 0,
  noTaskReady: 0,
  cores: 0,
  gpus: 0,
  memory: 0,
  workers: 0,
  processes: 0,
  labels: 0,
  nameLimit: 0,
  startingWorkers: 0,
  taskOverhead: 0,
  heldBack: 0,
  nodeAway: 0,
}

/** Tasks of one second, one after the other on each of the workers. */
const bag = (count: number, workers: number): SyntheticTask[] =>
  Array.from({ length: count }, (_, at) => {
    const start = Math.floor(at / workers)
    return { uid: `t${at}`, start, end: start + 1, worker: `n1/local/w${at % workers}` }
  })

describe('what bounded a run', () => {
  it('bounds: a bag of tasks keeps all slots busy', () => {
    const shown = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks: bag(40, 4), end: 10 })
    expect(shown).toMatchObject({ from: 0, to: 10, slots: 4, stragglers: [] })
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 40 })
    expect(shown.criticalPath).toMatchObject({ length: 1, seconds: 1, share: 0.1 })
  })

  it('bounds: in a chain no task is ready for the other slots, and the path is the run', () => {
    const tasks = Array.from({ length: 10 }, (_, at) => ({
      uid: `t${at}`,
      start: at,
      end: at + 1,
      ...(at === 0 ? {} : { ready: at, dependencies: [`t${at - 1}`] }),
    }))
    const shown = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks, end: 10 })
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 10, noTaskReady: 30 })
    expect(shown.criticalPath).toMatchObject({ length: 10, seconds: 10, share: 1 })
    expect(shown.criticalPath.tasks.map(({ task }) => task)).toEqual([...tasks.keys()])
  })

  it('bounds: one straggler is the critical path, and is named with the median of its name', () => {
    const tasks = [...bag(39, 4), { uid: 'slow', start: 9, end: 100, worker: 'n1/local/w3' }]
    const shown = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks, end: 100 })
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 130, noTaskReady: 270 })
    expect(shown.criticalPath).toMatchObject({ length: 1, seconds: 91, share: 0.91 })
    expect(shown.stragglers).toMatchObject([{ task: 39, seconds: 91, median: 1 }])
  })

  it('bounds: a block around the whole run is neither the path nor a straggler', () => {
    const blocks = [1, 10].map((end) => ({
      uid: `block-${end}`,
      name: 'sweep',
      start: 0,
      end,
      worker: 'n1/workflow/main',
      backend: 'workflow',
    }))
    const tasks = [...blocks, ...bag(40, 4)]
    const shown = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 4 }], tasks, end: 10 })
    expect(shown).toMatchObject({ slots: 4, stragglers: [] })
    expect(shown.criticalPath).toMatchObject({ length: 1, seconds: 1, share: 0.1 })
  })

  it('bounds: tasks that wait for a GPU leave cores idle, and the GPU is named', () => {
    const resources = { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 }
    const tasks = bag(10, 1).map((task) => ({ ...task, resources }))
    const nodes = [{ nodeId: 'n1', cores: 4, gpus: 1 }]
    const shown = boundsOfRun({ nodes, tasks, end: 10 })
    // 9, 8, …, 0 tasks wait, for three idle cores.
    const gpus = 7 * 3 + 2 + 1
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 10, gpus, noTaskReady: 30 - gpus })
  })

  it('bounds: what waits behind a task that waits for a GPU waits for the GPU', () => {
    const resources = { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 }
    // The last GPU task begins at 3: until then the plain ones are behind it.
    const tasks = [
      ...bag(4, 1).map((task) => ({ ...task, resources })),
      { uid: 'plain-1', start: 3, end: 4, worker: 'n1/local/w1' },
      { uid: 'plain-2', start: 3, end: 4, worker: 'n1/local/w2' },
    ]
    const nodes = [{ nodeId: 'n1', cores: 3, gpus: 1 }]
    const shown = boundsOfRun({ nodes, tasks, end: 4 })
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 6, gpus: 3 * 2 })
    // One that was there before the first of them is not behind anything.
    const early = { uid: 'early', created: 0, start: 3, end: 4, worker: 'n1/local/w1' }
    const others = bag(4, 1).map((task) => ({ ...task, resources }))
    expect(boundsOfRun({ nodes, tasks: [early, ...others], end: 4 }).slotSeconds).toMatchObject({
      startingWorkers: 3,
    })
  })

  it('bounds: memory and labels that no free slot has are named', () => {
    const wants = (resources: object) => [
      { uid: 'a', start: 0, end: 10, resources },
      { uid: 'b', resources },
    ]
    const nodes = [{ nodeId: 'n1', cores: 2, memoryMb: 1000 }]
    const memory = { cores: 1, gpus: 0, memory_mb: 800, ranks: 1 }
    expect(boundsOfRun({ nodes, tasks: wants(memory), end: 10 }).slotSeconds).toEqual({
      ...nothing,
      ran: 10,
      memory: 10,
    })
    const labels = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1, labels: { disk: 'ssd' } }
    expect(boundsOfRun({ nodes, tasks: wants(labels), end: 10 }).slotSeconds).toEqual({
      ...nothing,
      ran: 10,
      labels: 10,
    })
  })

  it('bounds: tasks that wait for the limit of their name', () => {
    const tasks = bag(10, 1).map((task) => ({ ...task, queued: task.start ?? 0 }))
    const limits = { simulate: { concurrent: 1, per_second: null } }
    const nodes = [{ nodeId: 'n1', cores: 4 }]
    const { slotSeconds } = boundsOfRun({ nodes, tasks, end: 10, limits })
    // 9, 8, …, 0 tasks wait, for three idle cores.
    const nameLimit = 7 * 3 + 2 + 1
    expect(slotSeconds).toEqual({ ...nothing, ran: 10, nameLimit, noTaskReady: 30 - nameLimit })
  })

  it('bounds: a ready task waits for its worker, then for the overhead of each start', () => {
    const tasks = Array.from({ length: 5 }, (_, at) => {
      return { uid: `t${at}`, created: 0, start: 2 * at + 1, end: 2 * at + 2 }
    })
    const nodes = [{ nodeId: 'n1', cores: 1 }]
    const { slotSeconds } = boundsOfRun({ nodes, tasks, end: 10 })
    expect(slotSeconds).toEqual({ ...nothing, ran: 5, startingWorkers: 1, taskOverhead: 4 })
    // A closure has no worker that starts.
    const closures = tasks.map((task) => ({ ...task, worker: 'n1/local/main' }))
    expect(boundsOfRun({ nodes, tasks: closures, end: 10 }).slotSeconds).toEqual({
      ...nothing,
      ran: 5,
      taskOverhead: 5,
    })
  })

  it('bounds: a start that is much later than most waited for the scheduler', () => {
    // 10 ms between two tasks, and once 5 s.
    const starts = Array.from({ length: 20 }, (_, at) => 1.01 * at + (at < 10 ? 0 : 5))
    const tasks = starts.map((start, at) => ({ uid: `t${at}`, start, end: start + 1 }))
    const end = (starts.at(-1) ?? 0) + 1
    const { slotSeconds } = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end })
    expect(slotSeconds.ran).toBeCloseTo(20, 3)
    expect(slotSeconds.taskOverhead).toBeCloseTo(18 * 0.01, 3)
    expect(slotSeconds.heldBack).toBeCloseTo(5.01, 3)
  })

  it('bounds: a straggler whose extra time is below 1 % of the run is left out', () => {
    const nodes = [{ nodeId: 'n1', cores: 1 }]
    const tasksWith = (seconds: number): SyntheticTask[] => [
      ...bag(99, 1),
      { uid: 'slow', start: 99, end: 99 + seconds },
    ]
    const found = [2.1, 2.5].map((seconds) =>
      boundsOfRun({ nodes, tasks: tasksWith(seconds), end: 120 }).stragglers.map(
        ({ task }) => task,
      ),
    )
    expect(found).toEqual([[], [99]])
  })

  it('bounds: a worker that replaces another starts as well', () => {
    const tasks = [1, 1, 2, 2].map((worker, at) => {
      const start = worker === 1 ? at : at + 3
      return { uid: `t${at}`, start, end: start + 1, worker: `n1/local/w${worker}` }
    })
    const { slotSeconds } = boundsOfRun({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 7 })
    expect(slotSeconds).toEqual({ ...nothing, ran: 4, startingWorkers: 3 })
  })

  it('bounds: a node that joins late or is lost is away meanwhile', () => {
    const nodes = [
      { nodeId: 'n1', cores: 1 },
      { nodeId: 'n2', cores: 2, from: 4, to: 9 },
    ]
    const tasks = [{ uid: 'a', start: 0, end: 10 }]
    expect(boundsOfRun({ nodes, tasks, end: 10 }).slotSeconds).toEqual({
      ...nothing,
      ran: 10,
      noTaskReady: 10,
      nodeAway: 10,
    })
  })

  it('bounds: a task that waits for its retry is not ready before the delay is over', () => {
    const common = { node_id: 'n1', worker_id: 'n1/local/w1' }
    const events = [
      ...eventsOf({
        nodes: [{ nodeId: 'n1', cores: 1 }],
        tasks: [{ uid: 'a', start: 0, end: 10 }],
        end: 10,
      }),
      viewEvent('tutti.TaskAttempt', 'a', { event_time: 2, retry_at: 5, ...common }),
      viewEvent('tutti.AttemptStarted', 'a', { event_time: 6, ...common }),
    ].toSorted((a, b) => a.event_time - b.event_time)
    const { slotSeconds } = boundsOf(passOver(events))
    expect(slotSeconds).toEqual({ ...nothing, ran: 6, noTaskReady: 3, heldBack: 1 })
  })

  it('bounds: in a record without nodes every worker is a slot', () => {
    const shown = boundsOfRun({ nodes: [], tasks: bag(10, 2), end: 10 })
    expect(shown.slots).toBe(2)
    expect(shown.slotSeconds).toEqual({ ...nothing, ran: 10, noTaskReady: 10 })
  })

  it('bounds: an empty run has no slots', () => {
    expect(boundsOf(createRunPass())).toMatchObject({ from: 0, to: 0, slots: 0 })
  })
})

const sumOf = ({ slotSeconds }: BoundsView): number =>
  Object.values(slotSeconds).reduce((sum, part) => sum + part, 0)

it('bounds: whatever happens, each second of each slot is in exactly one class', () => {
  assertProperty(
    fc.property(anyEvents, (drafts) => {
      const clock = new ManualClock()
      const pass = createRunPass()
      for (const draft of drafts) {
        pass.take(toEvent(draft, clock))
        void clock.advance(500)
      }
      const shown = boundsOf(pass)
      const sizes = shown.backends.flatMap((backend) => backend.sizes)
      const time = sizes.reduce((sum, { seconds, capacity }) => sum + seconds * capacity.cores, 0)
      expect(sumOf(shown)).toBeCloseTo(time, 6)
      const length = sizes.reduce((sum, { seconds }) => sum + seconds, 0)
      expect(length).toBeCloseTo(shown.backends.length * shown.seconds, 6)
      expect(Math.min(...Object.values(shown.slotSeconds))).toBeGreaterThanOrEqual(0)
      expect(shown.criticalPath.share).toBeLessThanOrEqual(1)
    }),
    { numRuns: 100, longRuns: 10_000 },
  )
})

it('graph: tasks by name with the dependencies between names, the most frequent first', () => {
  const tasks = [
    ...Array.from({ length: 3 }, (_, at) => ({ uid: `s${at}`, start: 0, end: 1 })),
    { uid: 'sum', name: 'reduce', ready: 1, start: 1, end: 2, dependencies: ['s0', 's1', 's2'] },
    { uid: 'plot', name: 'plot', dependencies: ['sum', 'unknown'] },
  ]
  const { states } = passOver(eventsOf({ nodes: [], tasks, end: 3 }))
  expect(graph.show(states.graph, { names: states.names, limit: 10 })).toEqual({
    nodes: [
      { name: 'simulate', tasks: 3, completed: 3, failed: 0, running: 0 },
      { name: 'reduce', tasks: 1, completed: 1, failed: 0, running: 0 },
      { name: 'plot', tasks: 1, completed: 0, failed: 0, running: 0 },
    ],
    edges: [
      { from: 0, to: 1, count: 3 },
      { from: 1, to: 2, count: 1 },
    ],
    otherNodes: 0,
    otherEdges: 0,
    dropped: 0,
  })
  const few = graph.show(states.graph, { names: states.names, limit: 2 })
  expect(few).toMatchObject({ otherNodes: 1, edges: [{ from: 0, to: 1, count: 3 }] })
})

describe('the order of the queue', () => {
  const large = { cores: 1, gpus: 0, memory_mb: 1500, ranks: 1 }
  const wide = { cores: 3, gpus: 0, memory_mb: 0, ranks: 1 }
  const nodes = [{ nodeId: 'n1', cores: 3, memoryMb: 2000 }]
  const queue = (from: number): SyntheticTask[] => [
    ...bag(20, 1).map((task, at) => ({
      ...task,
      start: from + at,
      end: from + at + 1,
      resources: large,
    })),
    { uid: 'last', start: from + 20, end: from + 20.1, resources: wide },
  ]

  it('bounds: idle slots lack what the first task of the queue lacks', () => {
    const shown = boundsOfRun({ nodes, tasks: queue(0), end: 20.1 })
    expect(shown.slotSeconds).toMatchObject({ memory: 38, cores: 2 })
  })

  it('bounds: which kind of request was told first does not matter', () => {
    const first = { uid: 'first', start: 0, end: 0.1, resources: wide }
    const shown = boundsOfRun({ nodes, tasks: [first, ...queue(0.1)], end: 20.2 })
    expect(shown.slotSeconds.memory).toBeCloseTo(38, 5)
    expect(shown.slotSeconds.cores).toBeCloseTo(2, 5)
  })
})
