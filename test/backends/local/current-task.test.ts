import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../../src/events/event.ts'
import { type Clock, systemClock } from '../../../src/foundation/clock.ts'
import type * as TaskContext from '../../../src/foundation/task-context.ts'
import { currentTask, runInTask } from '../../../src/foundation/task-context.ts'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'
import {
  failFirst,
  failFirstOnWorker,
  inspect,
  inspectOnWorker,
  listen,
  listenOnWorker,
  tell,
  tellOnWorker,
} from './functions/fixtures/telling.ts'

const kinds = {
  closure: { isolation: 'thread', tell, listen, failFirst, inspect },
  thread: {
    isolation: 'thread',
    tell: tellOnWorker,
    listen: listenOnWorker,
    failFirst: failFirstOnWorker,
    inspect: inspectOnWorker,
  },
  process: {
    isolation: 'process',
    tell: tellOnWorker,
    listen: listenOnWorker,
    failFirst: failFirstOnWorker,
    inspect: inspectOnWorker,
  },
} as const

type Told = BaseEvent & Readonly<Record<string, unknown>>

describe.for(Object.keys(kinds) as (keyof typeof kinds)[])('currentTask() in a %s', (kind) => {
  const functions = kinds[kind]

  async function open(clock: Clock = systemClock) {
    const { isolation } = functions
    const session = new Session([
      await ConcurrentBackend.create({ name: 'l', isolation, workers: 1, clock }),
    ])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const events: Told[] = []
    telemetry.subscribe((event) => void events.push(event as Told))
    return { session, telemetry, events }
  }

  it('currentTask() sends progress at a limited rate, and events, before the end', async () => {
    const { session, telemetry, events } = await open()
    const task = new ComputeTask({ function: functions.tell, args: ['first'] })
    await session.submitTasks([task])
    expect(await task).toEqual([task.uid, 1, false, 'event'])
    await telemetry.flush()
    const own = events.filter((event) => event.task_id === task.uid)
    const types = own.map((event) => event.event_type)
    expect(types.at(-1)).toBe('TaskCompleted')
    const told = own.slice(types.indexOf('TaskStarted') + 1, -1)
    const progress = told.filter((event) => event.event_type === 'tutti.TaskProgress')
    expect(progress.length).toBeLessThan(1000)
    expect(progress[0]).toMatchObject({ fraction: 0, text: 'begun', backend: 'l' })
    expect(progress.at(-1)).toMatchObject({ fraction: 1, text: 'done' })
    const step = told.find((event) => event.event_type === 'test.Step')
    expect(step).toMatchObject({ label: 'first', ms: 1.5, event_time: 1000 })
    expect(step).toMatchObject({ session_id: session.id, attributes: { extra: [1] } })
    expect(told).toHaveLength(progress.length + 1)
  })

  it('the signal is aborted by a cancel and by the time-out', async () => {
    // Its time stands still: the grace of the worker is never over.
    const clock = new ManualClock()
    const { session, telemetry, events } = await open(clock)
    const isListening = (task: ComputeTask<unknown>): Promise<void> =>
      eventually(() => {
        const own = events.filter(({ task_id }) => task_id === task.uid)
        expect(own.map(({ event_type }) => event_type)).toContain('tutti.TaskProgress')
      })
    const canceled = new ComputeTask({ function: functions.listen })
    await session.submitTasks([canceled])
    await isListening(canceled)
    session.cancel(canceled)
    await session.waitTasks([canceled])
    expect(canceled.state).toBe('CANCELED')
    const late = new ComputeTask({ function: functions.listen, timeoutSeconds: 900 })
    await session.submitTasks([late])
    await isListening(late)
    await clock.advance(900_000)
    await session.waitTasks([late])
    expect(late.state).toBe('FAILED')
    await telemetry.flush()
    expect((late.error as Error).cause).toMatchObject({ name: 'TimeoutError' })
    // A worker whose code ended by itself is kept.
    const lost = events.filter((event) => event.event_type === 'tutti.WorkerLost')
    expect(lost).toEqual([])
    const workers = events.flatMap((event) => event.attributes['worker_id'] ?? [])
    expect(new Set(workers).size).toBe(1)
  })

  it('currentTask() has its five fields only, and is the same object each time', async () => {
    const { session } = await open()
    const task = new ComputeTask({ function: functions.inspect })
    await session.submitTasks([task])
    expect(await task).toEqual([['attempt', 'emit', 'progress', 'signal', 'uid'], true, true])
  })

  it('a retry has the number of its attempt', async () => {
    const { session } = await open()
    const task = new ComputeTask({ function: functions.failFirst, retries: 1 })
    await session.submitTasks([task])
    expect(await task).toBe(2)
  })
})

it('currentTask() is undefined outside of a task', () => {
  expect(currentTask()).toBeUndefined()
})

const one = (): number => 1
it.each([
  ['callback', 'sim-1', 5],
  ['callback', 'sim-1', undefined],
  ['task', 5, one],
  ['task', null, one],
  ['task', { uid: 'sim-1' }, one],
])('runInTask names a wrong %s', (field, task, callback) => {
  const error = expect.objectContaining({ name: 'ValueError', field })
  expect(() => runInTask(task as never, callback as never)).toThrow(error)
})

it('currentTask() is the same in another copy of the package', async () => {
  const path = '../../../src/foundation/task-context.ts?another'
  const other = (await import(/* @vite-ignore */ path)) as typeof TaskContext
  expect(other.currentTask).not.toBe(currentTask)
  expect(runInTask('sim-1', () => other.currentTask()?.uid)).toBe('sim-1')
  expect(other.runInTask('sim-2', () => currentTask()?.uid)).toBe('sim-2')
})
