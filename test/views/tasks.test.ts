import { describe, expect, it } from 'vitest'
import { explainTask, findTasks } from '../../src/views/tasks.ts'
import { eventsOf, passOver } from './synthetic-run.ts'
import { viewEvent } from './view-event.ts'

const gpu = { cores: 1, gpus: 1, memory_mb: 0, ranks: 1 }
const tasks = [
  { uid: 'a', start: 1, end: 4, worker: 'n1/local/w1' },
  { uid: 'b', start: 1, end: 3, worker: 'n2/local/w1', endType: 'TaskFailed' as const },
  { uid: 'c', name: 'reduce', ready: 4, start: 5, dependencies: ['a'] },
  { uid: 'd', name: 'plot', dependencies: ['a', 'c'] },
  { uid: 'e', resources: gpu },
  { uid: 'f', resources: gpu },
  { uid: 'g' },
]
const pass = passOver(eventsOf({ nodes: [], tasks, end: 9 }))

describe('tasks of a record', () => {
  it('tasks: found by state, name and node, with their number beyond the limit', () => {
    const uids = (query: object) =>
      findTasks(pass, { limit: 10, ...query }).tasks.map(({ uid }) => uid)
    expect(uids({})).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g'])
    expect(uids({ state: 'DONE' })).toEqual(['a'])
    expect(uids({ state: 'QUEUED' })).toEqual(['e', 'f', 'g'])
    expect(uids({ name: 'reduce' })).toEqual(['c'])
    expect(uids({ nodeId: 'n2' })).toEqual(['b'])
    expect(uids({ failureGroup: 1 })).toEqual(['b'])
    expect(findTasks(pass, { limit: 2 })).toMatchObject({
      total: 7,
      tasks: [{ task: 0 }, { task: 1 }],
    })
  })

  it('explain: the waits of a task that ran, and its attempts', () => {
    expect(explainTask(pass, 'c')).toEqual({
      task: 2,
      uid: 'c',
      name: 'reduce',
      scope: '',
      state: 'RUNNING',
      isInterrupted: false,
      workerId: 'n1/local/w1',
      nodeId: 'n1',
      story: { created: 0, ready: 4, submitted: 4, queued: 4, started: 5, ended: null },
      seconds: null,
      ran: null,
      waited: 1,
      runningFor: 4,
      progress: null,
      failureGroup: 0,
      errorType: '',
      attempts: [
        {
          lane: 0,
          task: 2,
          start: 5,
          end: 9,
          seconds: 4,
          outcome: 'running',
          retryDelay: 0,
          attempt: 1,
          error: '',
          isEarlier: false,
        },
      ],
      dependencies: [{ uid: 'a', name: 'simulate', state: 'DONE', ended: 4 }],
      waitsFor: [],
      ahead: 0,
      firstAhead: [],
      shortage: null,
      heldUpBy: null,
      retryAt: null,
      workerFree: 4,
      away: 0,
      earlierStarts: { count: 0, larger: 0, lastLarger: null, asked: null, freedBy: null },
      cancelReason: null,
      reuses: [],
      moved: null,
    })
    expect(explainTask(pass, 'a')).toMatchObject({ state: 'DONE', seconds: 3, nodeId: 'n1' })
  })

  it('explain: a task that waits says for which tasks, or behind how many', () => {
    expect(explainTask(pass, 'd')).toMatchObject({ state: 'CREATED', waitsFor: ['c'], ahead: 0 })
    expect(explainTask(pass, 'e')).toMatchObject({ state: 'QUEUED', ahead: 0 })
    expect(explainTask(pass, 'f')).toMatchObject({ state: 'QUEUED', ahead: 1, waitsFor: [] })
    expect(explainTask(pass, 'nobody')).toBeNull()
  })

  it('explain: a task whose session ended before it was interrupted', () => {
    const resumed = viewEvent('SessionStarted', null, {
      event_time: 20,
      attributes: { resumed_from: 'x' },
    })
    const later = passOver([...eventsOf({ nodes: [], tasks, end: 9 }), resumed])
    expect(explainTask(later, 'c')).toMatchObject({
      isInterrupted: true,
      attempts: [{ end: 9, outcome: 'lost' }],
    })
    expect(explainTask(later, 'b')).toMatchObject({ state: 'FAILED', isInterrupted: false })
  })
})

describe('why a task waits', () => {
  const nodes = [{ nodeId: 'n1', cores: 4, workers: 1, maxProcesses: 2 }]
  const program = { taskType: 'compute' as const, worker: 'n1/local/p1' }
  const waiting = [
    { uid: 'p1', start: 0, ...program },
    { uid: 'p2', start: 0, ...program },
    { uid: 'f1', start: 0 },
    { uid: 'p3', ...program },
    { uid: 'f2' },
    { uid: 'p4', ...program, priority: 10 },
  ]
  const shown = passOver(eventsOf({ nodes, tasks: waiting, end: 9 }).slice(0, -1))

  it('explain: a function waits for a worker, and not behind programs', () => {
    const shortage = { resource: 'workers', asked: 1, free: 0, total: 1 }
    expect(explainTask(shown, 'f2')).toMatchObject({ ahead: 0, firstAhead: [], shortage })
  })

  it('explain: a program waits for one of maxProcesses, behind those of a higher priority', () => {
    const shortage = { resource: 'processes', asked: 1, free: 0, total: 2 }
    expect(explainTask(shown, 'p3')).toMatchObject({ ahead: 1, firstAhead: ['p4'], shortage })
    expect(explainTask(shown, 'p4')).toMatchObject({ ahead: 0, firstAhead: [], shortage })
  })

  it('explain: a task waits behind another one that lacks a resource, and says which', () => {
    const shape = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1 }
    const [gpu1, memory] = [
      { ...shape, gpus: 1 },
      { ...shape, memory_mb: 3000 },
    ]
    const node = { nodeId: 'n1', cores: 4, gpus: 1, memoryMb: 4000, workers: 2, maxProcesses: 8 }
    const queued = [
      { uid: 'g1', start: 0, resources: gpu1, ...program },
      { uid: 'm1', start: 0, resources: memory, ...program },
      { uid: 'g2', resources: gpu1, ...program },
      { uid: 'p1', ...program },
      { uid: 'm2', resources: memory, ...program },
      { uid: 'f1' },
      { uid: 'p2', ...program, priority: 5, resources: { ...shape, cores: 3 } },
    ]
    const events = eventsOf({ nodes: [node], tasks: queued.slice(0, -1), end: 9 }).slice(0, -1)
    const lacking = { asked: 1, free: 0, total: 1, resource: 'gpus', labels: {} }
    const heldUpBy = { uid: 'g2', shortage: lacking }
    const stuck = passOver(events)
    expect(explainTask(stuck, 'g2')).toMatchObject({ ahead: 0, shortage: lacking, heldUpBy: null })
    expect(explainTask(stuck, 'p1')).toMatchObject({
      ahead: 1,
      firstAhead: ['g2'],
      shortage: null,
      heldUpBy,
    })
    expect(explainTask(stuck, 'm2')).toMatchObject({
      ahead: 2,
      firstAhead: ['g2', 'p1'],
      shortage: { resource: 'memory', asked: 3000, free: 1000, total: 4000 },
      heldUpBy,
    })
    expect(explainTask(stuck, 'f1')).toMatchObject({ ahead: 3, shortage: null, heldUpBy })
    const more = passOver(eventsOf({ nodes: [node], tasks: queued, end: 9 }).slice(0, -1))
    expect(explainTask(more, 'p1')).toMatchObject({
      firstAhead: ['p2', 'g2'],
      heldUpBy: { uid: 'p2', shortage: { resource: 'cores', asked: 3, free: 2, total: 4 } },
    })
  })

  it('explain: programs are behind all programs before them, whatever those ask for', () => {
    const shape = { cores: 1, gpus: 0, memory_mb: 900, ranks: 1 }
    const queued = [...waiting, { uid: 'mem', resources: shape, ...program }]
    const both = passOver(eventsOf({ nodes, tasks: queued, end: 9 }).slice(0, -1))
    expect(explainTask(both, 'mem')).toMatchObject({
      ahead: 2,
      firstAhead: ['p4', 'p3'],
      shortage: { resource: 'processes' },
    })
  })

  it('explain: a retry whose delay is over waits before new tasks of its priority', () => {
    const again = { event_time: 2, retry_at: 2, worker_id: 'n1/local/w1', node_id: 'n1' }
    const tasksOfRun = [
      { uid: 'f1', start: 0 },
      { uid: 'f0', created: 1 },
      { uid: 'f2', start: 3 },
    ]
    const events = eventsOf({ nodes, tasks: tasksOfRun, end: 4 }).slice(0, -1)
    const failed = viewEvent('tutti.TaskAttempt', 'f1', again)
    const retrying = passOver([...events, failed].toSorted((a, b) => a.event_time - b.event_time))
    const shortage = { resource: 'workers', asked: 1, free: 0, total: 1 }
    expect(explainTask(retrying, 'f0')).toMatchObject({ ahead: 1, firstAhead: ['f1'], shortage })
    expect(explainTask(retrying, 'f1')).toMatchObject({ ahead: 0, retryAt: 2, shortage })
  })

  it('explain: on several nodes only tasks with requests of their own keep a node free', () => {
    const shape = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1 }
    const ssd = { ...shape, labels: { disk: 'ssd' } }
    const cluster = [
      { nodeId: 'n1', cores: 2, labels: { disk: 'ssd' } },
      { nodeId: 'n2', cores: 4 },
    ]
    const queued = [
      { uid: 'a', start: 0, resources: ssd, worker: 'n1/local/w1' },
      { uid: 'b', start: 0, resources: ssd, worker: 'n1/local/w2' },
      { uid: 'c', resources: ssd },
      { uid: 'd', resources: ssd },
      { uid: 'all', resources: { ...shape, cores: 4 } },
      { uid: 'e', start: 0, worker: 'n2/local/w1' },
      { uid: 'one' },
    ]
    const first = passOver(eventsOf({ nodes: cluster, tasks: queued, end: 9 }).slice(0, -1))
    const shortage = { resource: 'cores', asked: 1, free: 0, total: 2, labels: ssd.labels }
    expect(explainTask(first, 'd')).toMatchObject({ ahead: 1, firstAhead: ['c'], shortage })
    expect(explainTask(first, 'all')).toMatchObject({
      ahead: 0,
      shortage: { resource: 'cores', asked: 4, free: 3, total: 4, labels: {} },
      heldUpBy: null,
    })
    const heldUpBy = { uid: 'all', shortage: { resource: 'cores' } }
    expect(explainTask(first, 'one')).toMatchObject({ shortage: null, heldUpBy: null })
    const without = queued.filter(({ uid }) => uid !== 'c' && uid !== 'd')
    const after = passOver(eventsOf({ nodes: cluster, tasks: without, end: 9 }).slice(0, -1))
    expect(explainTask(after, 'one')).toMatchObject({ ahead: 1, shortage: null, heldUpBy })
  })

  it('explain: on a cluster older tasks of one core begin before one with labels or ranks', () => {
    const shape = { cores: 1, gpus: 0, memory_mb: 0, ranks: 1 }
    const cluster = [
      { nodeId: 'n1', cores: 1, labels: { zone: 'x' } },
      { nodeId: 'n2', cores: 2 },
    ]
    const queued = [
      { uid: 'a', start: 0, worker: 'n1/local/w1' },
      { uid: 'b', start: 0, worker: 'n2/local/w1' },
      { uid: 'd' },
      { uid: 'e' },
      { uid: 'zone', resources: { ...shape, labels: { zone: 'x' } } },
      { uid: 'ranks', resources: { ...shape, ranks: 2 } },
      { uid: 'f' },
    ]
    const crowded = passOver(eventsOf({ nodes: cluster, tasks: queued, end: 9 }).slice(0, -1))
    expect(explainTask(crowded, 'zone')).toMatchObject({ ahead: 2, firstAhead: ['d', 'e'] })
    expect(explainTask(crowded, 'ranks')).toMatchObject({
      ahead: 3,
      // The first node could run the last of them as well.
      firstAhead: ['d', 'e', 'zone'],
      // One of them fits on the second node.
      shortage: { resource: 'cores', asked: 1, ranks: 2, room: 1 },
    })
    expect(explainTask(crowded, 'f')).toMatchObject({ ahead: 2, firstAhead: ['d', 'e'] })
  })

  it('explain: a task of a backend without nodes waits for the tasks that run there', () => {
    const prompts = [
      { uid: 'p1', backend: 'llm', start: 0, worker: 'llm' },
      { uid: 'p2', backend: 'llm' },
      { uid: 'p3', backend: 'llm' },
    ]
    const answering = passOver(eventsOf({ nodes, tasks: prompts, end: 9 }).slice(0, -1))
    expect(explainTask(answering, 'p3')).toMatchObject({
      firstAhead: ['p2'],
      shortage: { resource: 'backend', total: 1 },
    })
  })

  it('explain: a task that ended while no session was there ran as long as was recorded', () => {
    const given = (type: string, event_time: number, duration_seconds?: number) =>
      viewEvent(type, 'x', {
        event_time,
        node_id: 'n1',
        attributes: { worker_id: 'n1/agent/p1', attempt: 1 },
        ...(duration_seconds === undefined ? {} : { duration_seconds }),
      })
    const events = (end: string) => [
      viewEvent('SessionStarted', null, { event_time: 10 }),
      ...['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted'].map((one) => given(one, 11)),
      given(end, 11.02, 4),
    ]
    for (const end of ['TaskCompleted', 'TaskFailed', 'TaskCanceled']) {
      const found = explainTask(passOver(events(end)), 'x')
      expect([end, found?.ran, found?.seconds]).toEqual([end, 4, 4])
      expect(found?.attempts).toMatchObject([{ seconds: 4 }])
    }
  })

  it('explain: a task whose attempt failed waits until the delay is over', () => {
    const attempt = { event_time: 2, retry_at: 62, worker_id: 'n1/local/w1', node_id: 'n1' }
    const failed = viewEvent('tutti.TaskAttempt', 'f1', attempt)
    const tasksOfRun = [{ uid: 'f1', start: 0 }]
    const events = [...eventsOf({ nodes, tasks: tasksOfRun, end: 1 }).slice(0, -1), failed]
    expect(explainTask(passOver(events), 'f1')).toMatchObject({ state: 'RUNNING', retryAt: 62 })
    const again = viewEvent('tutti.AttemptStarted', 'f1', { ...attempt, event_time: 63 })
    expect(explainTask(passOver([...events, again]), 'f1')?.retryAt).toBeNull()
  })
})
