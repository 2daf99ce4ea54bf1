import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventsOf, type SyntheticTask } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { runHere } from '../run-command.ts'
import { linesOf, recordFolder } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const nodes = [{ nodeId: 'n1', cores: 2 }]
const on = { node_id: 'n1', worker_id: 'n1/local/w1' }

const inOrder = (events: readonly ViewEvent[]): ViewEvent[] =>
  events.toSorted((a, b) => a.event_time - b.event_time)

/** The file of a session that continues the run, `seconds` later. */
const continued = (tasks: readonly SyntheticTask[], seconds: number): ViewEvent[] =>
  eventsOf({ nodes, tasks, end: 9 }).map((event) => ({
    ...event,
    event_time: event.event_time + seconds,
    attributes:
      event.event_type === 'SessionStarted'
        ? { resumed_from: 's-1.1790000000.telemetry.jsonl' }
        : { ...event.attributes, attempt: 1 },
  }))

/** Killed at 3 s; the next session comes at 13 s. */
const left = [
  { uid: 'waited', created: 1 },
  { uid: 'ran', created: 1, start: 3 },
  { uid: 'failed', created: 1, start: 2, end: 3, endType: 'TaskFailed' as const },
  { uid: 'closed', created: 1, end: 3, endType: 'TaskCanceled' as const },
]
const again = [
  { uid: 'waited', start: 2, end: 4 },
  { uid: 'ran', start: 1, end: 3 },
  { uid: 'failed', start: 1, end: 2 },
  { uid: 'closed', start: 1, end: 2 },
]

/** A node is lost while `a` runs there and `b` waits there; `c` is canceled in the queue. */
const moved = inOrder([
  ...eventsOf({
    nodes,
    tasks: [
      { uid: 'a', start: 1, end: 8 },
      { uid: 'b', start: 6, end: 7 },
      { uid: 'c', created: 1, end: 6, endType: 'TaskCanceled' },
      { uid: 'd', created: 1 },
    ],
    end: 9,
  }).filter(({ event_type: type, task_id: uid }) => type !== 'TaskCanceled' || uid !== 'c'),
  viewEvent('TaskCanceled', 'c', { event_time: 6, attributes: { reason: 'not wanted' } }),
  viewEvent('tutti.TaskMoved', null, { event_time: 2, node_id: 'n0', count: 1, tasks: ['b'] }),
  viewEvent('tutti.TaskAttempt', 'a', {
    event_time: 2,
    retry_at: 2,
    error_type: 'WorkerLostError',
    error_message: 'node n0 was lost',
    ...on,
  }),
  viewEvent('tutti.AttemptStarted', 'a', { event_time: 6, ...on }),
])

const write = (name: string, events: readonly ViewEvent[]): void =>
  writeFileSync(join(folder.path, `${name}.telemetry.jsonl`), linesOf(events))

beforeAll(() => {
  const first = eventsOf({ nodes, tasks: left, end: 9 }).slice(0, -1)
  write('s-1.1790000000', first)
  write('s-1.1790000009', continued(again, 13))
  write('s-2.1790000000', moved)
})

const read = async (...args: readonly string[]): Promise<string> =>
  (await runHere(folder.path, args)).stdout
const readJson = async (...args: readonly string[]): Promise<Record<string, unknown>> =>
  JSON.parse(await read(...args, '--json')) as Record<string, unknown>

describe('explain: a task that a killed session has left', () => {
  it('explain: a queued one waited from its first creation, but for the time between', async () => {
    const { task, waits } = await readJson('explain', 'waited', 's-1')
    expect(task).toMatchObject({ created: 1, started: 15, ended: 17, waited_seconds: 4 })
    expect(waits).toMatchObject({ queue: 4, start: 0, run: 2, retries: 0, away: 10 })
    expect(await read('explain', 'waited', 's-1')).toContain(
      '10.0 s  while no process of the run was alive',
    )
    expect(await readJson('explain', 'closed', 's-1')).toMatchObject({
      task: { created: 1, started: 14, ended: 15 },
    })
  })

  it('explain: one that ran began with its first attempt', async () => {
    const { task, waits, attempts } = await readJson('explain', 'ran', 's-1')
    expect(task).toMatchObject({ created: 1, started: 3, ended: 16, ran_seconds: 2 })
    expect(waits).toMatchObject({ run: 2, retries: 1, away: 10 })
    expect(attempts).toMatchObject([
      { outcome: 'lost', is_earlier: true },
      { outcome: 'completed', is_earlier: false },
    ])
  })

  it('explain: one that had failed is made again, and says so', async () => {
    const { task, waits } = await readJson('explain', 'failed', 's-1')
    expect(task).toMatchObject({ created: 13, started: 14 })
    expect(waits).toMatchObject({ retries: 0, away: 0 })
    const text = await read('explain', 'failed', 's-1')
    expect(text).toMatch(/created .*, again by a later session/)
    expect(text).toMatch(/attempt 1 on n1\/local\/w1, begun by an earlier session: failed after/)
  })
})

describe('explain: what happened to a task beside its times', () => {
  it('explain: the time between attempts is not counted as run, and each says why', async () => {
    const { task, waits, attempts } = await readJson('explain', 'a', 's-2')
    expect(task).toMatchObject({ duration_seconds: 7, ran_seconds: 3 })
    expect(waits).toMatchObject({ run: 3, retries: 4 })
    expect(attempts).toMatchObject([
      { error: 'WorkerLostError: node n0 was lost' },
      { error: null },
    ])
    const text = await read('explain', 'a', 's-2')
    expect(text).toContain('3.00 s  ran\n     4.00 s  waited between its attempts\n')
    expect(text).toContain('failed after 1.00 s (WorkerLostError: node n0 was lost)')
    expect(await read('tasks', 's-2')).toMatch(/^a .* 3\.00 s/m)
    const { duration } = await readJson('status', 's-2')
    expect(duration).toMatchObject({ max: 3 })
  })

  it('explain: a task that left a lost node before it began says so', async () => {
    expect(await readJson('explain', 'b', 's-2')).toMatchObject({
      moved: { time: 2, node_id: 'n0' },
    })
    expect(await read('explain', 'b', 's-2')).toMatch(/moved at .*: node n0 was lost/)
  })

  it('explain: a canceled task has its reason, and what it had waited', async () => {
    expect(await readJson('explain', 'c', 's-2')).toMatchObject({
      cancel_reason: 'not wanted',
      waits: { routing: 0, queue: 5, run: null },
    })
    expect(await read('explain', 'c', 's-2')).toContain('  canceled: not wanted')
    expect(await read('tasks', 's-2')).toMatch(/^c +CANCELED .* 5\.00 s/m)
  })

  it('explain: a task that waits tells for how long so far', async () => {
    expect(await readJson('explain', 'd', 's-2')).toMatchObject({
      waits: { queue: null },
      waiting_seconds: 8,
    })
    expect(await read('explain', 'd', 's-2')).toContain('had waited for 8.00 s\n')
  })

  it('explain: a task that is in no queue yet was not routed', async () => {
    const submitted = eventsOf({ nodes, tasks: [{ uid: 'e' }], end: 9 })
    const before = submitted.filter(({ event_type: type }) => type !== 'TaskQueued')
    write('s-3.1790000000', before)
    expect(await readJson('explain', 'e', 's-3')).toMatchObject({
      task: { state: 'SUBMITTED' },
      waits: { dependencies: 0, routing: null, queue: null },
    })
  })

  it('explain: attempts have the numbers that the events tell', async () => {
    const events = eventsOf({ nodes, tasks: [{ uid: 'g', start: 1, end: 2 }], end: 9 })
    const second = events.map((event) =>
      event.event_type === 'TaskStarted'
        ? { ...event, attributes: { ...event.attributes, attempt: 2 } }
        : event,
    )
    write('s-8.1790000000', second)
    expect(await readJson('explain', 'g', 's-8')).toMatchObject({ attempts: [{ attempt: 2 }] })
    expect(await read('explain', 'g', 's-8')).toContain('  attempt 2 on n1/local/w1: completed')
  })

  it('explain: a task that began after larger ones names the last of those', async () => {
    const large = { resources: { cores: 2, gpus: 0, memory_mb: 0, ranks: 1 } }
    const tasks = [
      { uid: 'one', start: 0, end: 2 },
      { uid: 'wide', start: 2, end: 5, ...large },
      { uid: 'wider', start: 5, end: 7, ...large },
      { uid: 'behind', start: 7, end: 8 },
    ]
    write('s-6.1790000000', eventsOf({ nodes, tasks, end: 9 }))
    const expected = {
      count: 3,
      larger: 2,
      last_larger: { uid: 'wider', cores: 2, freed_by: 'wide' },
      freed_by: 'wider',
    }
    expect(await readJson('explain', 'behind', 's-6')).toMatchObject({ begun_before: expected })
    expect(await read('explain', 'behind', 's-6')).toContain(
      '7.00 s  waited in the queue for its turn and a free slot\n' +
        '             behind 2 larger tasks; the last, wider, asked for 2 cores, and there was ' +
        'room when wide had ended\n',
    )
    expect(await read('explain', 'wide', 's-6')).toContain(
      '2.00 s  waited in the queue for its turn and a free slot\n' +
        '             it asked for 2 cores, and there was room when one had ended\n',
    )
    const sorted = await readJson('tasks', 's-6', '--sort', 'ran', '--limit', '2')
    expect(sorted).toMatchObject({ total: 4, tasks: [{ uid: 'wide' }, { uid: 'one' }] })
    const waited = await readJson('tasks', 's-6', '--sort', 'waited', '--limit', '1')
    expect(waited).toMatchObject({ total: 4, tasks: [{ uid: 'behind' }] })
  })

  it('explain: cores are free when an attempt ends, also one that is tried again', async () => {
    const wide = { resources: { cores: 4, gpus: 0, memory_mb: 0, ranks: 1 } }
    const node = { nodeId: 'n1', cores: 4, workers: 2, maxProcesses: 2 }
    const tasks = [
      { uid: 'first', start: 0, end: 1 },
      { uid: 'hangs', start: 0, end: 12, taskType: 'compute' as const, worker: 'n1/local/p1' },
      { uid: 'second', start: 0, end: 1.5, worker: 'n1/local/w2' },
      { uid: 'wide', start: 6, end: 7, ...wide },
      { uid: 'behind', start: 7, end: 8, worker: 'n1/local/w2' },
    ]
    const attempt = { node_id: 'n1', worker_id: 'n1/local/p1', attributes: {} }
    const events = [
      ...eventsOf({ nodes: [node], tasks, end: 13 }),
      viewEvent('tutti.TaskAttempt', 'hangs', { ...attempt, event_time: 6, retry_at: 8 }),
      viewEvent('tutti.AttemptStarted', 'hangs', { ...attempt, event_time: 8, attempt: 2 }),
    ]
    // The end of an attempt is reported before the start of the task that takes its slot.
    const isAttempt = ({ event_type: type }: { event_type: string }): number =>
      type === 'tutti.TaskAttempt' ? 0 : 1
    events.sort((a, b) => a.event_time - b.event_time || isAttempt(a) - isAttempt(b))
    write('s-12.1790000000', events)
    expect(await readJson('explain', 'wide', 's-12')).toMatchObject({
      waits: { queue: 6, start: 0 },
      begun_before: { freed_by: 'hangs' },
    })
    expect(await read('explain', 'wide', 's-12')).toContain(
      '6.00 s  waited in the queue for its turn and a free slot\n' +
        '             it asked for 4 cores, and there was room when the attempt of hangs had ' +
        'ended\n',
    )
    // Its own worker was free long before, but its turn had not come.
    expect(await readJson('explain', 'behind', 's-12')).toMatchObject({
      waits: { queue: 7, start: 0 },
      begun_before: { last_larger: { uid: 'wide', freed_by: 'hangs' } },
    })
  })

  it('explain: the first task of a new worker waited in the queue for a slot', async () => {
    const tasks = [
      { uid: 'a', start: 1, end: 2 },
      { uid: 'b', start: 1, end: 6, worker: 'n1/local/w2' },
      { uid: 'c', start: 2, end: 5 },
      { uid: 'd', start: 7, end: 8, worker: 'n1/local/w3' },
      { uid: 'e', start: 6, end: 9 },
    ]
    write('s-9.1790000000', eventsOf({ nodes, tasks, end: 9 }))
    // Nothing had run before: its worker started.
    expect(await readJson('explain', 'b', 's-9')).toMatchObject({ waits: { queue: 0, start: 1 } })
    // Both cores were held until 5 s; then w3 was started for it, and one behind it began before.
    expect(await readJson('explain', 'd', 's-9')).toMatchObject({ waits: { queue: 5, start: 2 } })
    const inTurn = tasks.filter(({ uid }) => uid !== 'e')
    write('s-10.1790000000', eventsOf({ nodes, tasks: inTurn, end: 9 }))
    expect(await readJson('explain', 'd', 's-10')).toMatchObject({ waits: { queue: 6, start: 1 } })
    expect(await read('explain', 'd', 's-10')).toContain('1.00 s  until its worker began with it\n')
  })

  it('explain: waits between attempts are not told as those of an earlier session', async () => {
    const first = eventsOf({
      nodes,
      tasks: [{ uid: 'h', start: 1, end: 2, endType: 'TaskFailed' }],
      end: 9,
    })
    const second = continued([{ uid: 'h', start: 1, end: 5 }], 13)
    const attempt = { event_time: 15, retry_at: 16, error_type: 'Error', error_message: '', ...on }
    write('s-11.1790000000', first)
    const resumed = inOrder([
      ...second,
      viewEvent('tutti.TaskAttempt', 'h', attempt),
      viewEvent('tutti.AttemptStarted', 'h', { event_time: 17, ...on }),
    ]).map((event) =>
      event.event_type === 'SessionStarted'
        ? { ...event, attributes: { resumed_from: 's-11.1790000000.telemetry.jsonl' } }
        : event,
    )
    write('s-11.1790000013', resumed)
    expect(await read('explain', 'h', 's-11')).toContain('2.00 s  waited between its attempts\n')
  })

  it('explain: a task whose result a later session took says so', async () => {
    const done = eventsOf({ nodes, tasks: [{ uid: 'f', start: 0, end: 1 }], end: 2 })
    const reused = continued([{ uid: 'f', end: 0 }], 13).map((event) =>
      event.event_type === 'TaskCompleted'
        ? { ...event, attributes: { ...event.attributes, reused: true } }
        : event,
    )
    write('s-4.1790000000', done)
    const from = { resumed_from: 's-4.1790000000.telemetry.jsonl' }
    const [session, ...others] = reused
    if (session !== undefined)
      write('s-4.1790000013', [{ ...session, attributes: from }, ...others])
    expect(await readJson('explain', 'f', 's-4')).toMatchObject({ reused_at: [13] })
    // It ran in this run.
    expect(await readJson('status', 's-4')).toMatchObject({ reused: 0 })
    // Its session took it from the cache.
    const [, ...cached] = reused
    const told = cached.flatMap((event) =>
      event.event_type === 'TaskCompleted'
        ? [
            viewEvent('tutti.ResultReused', 'f', {
              event_time: event.event_time,
              source: 'stored',
            }),
            event,
          ]
        : [event],
    )
    write('s-7.1790000000', told)
    expect(await readJson('explain', 'f', 's-7')).toMatchObject({ reused_from: ['stored'] })
    expect(await read('explain', 'f', 's-7')).toMatch(
      /reused at .*: its result was taken from the cache, it did not run\n/,
    )
    expect(await readJson('status', 's-7')).toMatchObject({ reused: 1, names: [{ reused: 1 }] })
    expect(await read('status', 's-7')).toContain('1 task: 1 done (1 of them reused), 0 failed')
    expect(await read('explain', 'f', 's-4')).toMatch(
      /reused at .*: its result was taken, it did not run again\n/,
    )
  })

  it('status: a task between two attempts does not count as running', async () => {
    write(
      's-5.1790000000',
      moved.slice(
        0,
        moved.findIndex(({ event_time: time }) => time > 2),
      ),
    )
    const { tasks, between_attempts: between, names } = await readJson('status', 's-5')
    // The state is RUNNING all the same.
    expect([tasks, between]).toMatchObject([{ running: 1 }, 1])
    expect(names).toMatchObject([{ running: 1, between_attempts: 1 }])
  })
})
