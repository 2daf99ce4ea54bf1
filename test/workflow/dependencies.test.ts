import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import type { TaskFailedError } from '../../src/foundation/task-errors.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import type { Handle } from '../../src/workflow/task-function.ts'
import type { DependencyFailedError } from '../../src/workflow/index.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'
import { byRun } from '../long-run.ts'
import { rejection, typesOf } from '../session/open-session.ts'
import { openEngine, settled } from './open-engine.ts'

const add = (a: number, b: number): number => a + b

describe('a call', () => {
  it('call: returns a handle at once; awaiting it gives what the function returned', async () => {
    const backend = await ConcurrentBackend.create({ workers: 1 })
    await using flow = await WorkflowEngine.create({ backend })
    const onWorker = flow.functionTask(square)
    const inProcess = flow.functionTask(async (a: number, b: number) => add(a, b))
    const handle = inProcess(onWorker(3), onWorker(onWorker(2)))
    expect([handle.state, handle.error, handle.name]).toEqual(['CREATED', null, 'anonymous'])
    expect(await handle).toBe(25)
    expect(handle.state).toBe('DONE')
    expect(await handle.catch(() => 'never').finally(() => {})).toBe(25)
  })

  it('call: waits for handles anywhere in its arguments and gets their values', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((given: unknown) => given)
    const [a, b, c] = [f(1), f(2), f(3)]
    const waits = f({ list: [a, { b }], c: [[c]], rest: new Map([['a', 1]]) })
    await settled()
    expect(backend.jobs.map(({ uid }) => uid)).toEqual([a.uid, b.uid, c.uid])
    backend.complete(a, 'A')
    backend.complete(c, 'C')
    await settled()
    expect(backend.jobs).toHaveLength(3)
    backend.complete(b, 'B')
    await settled()
    expect(backend.closureOf(waits)?.()).toEqual({
      list: ['A', { b: 'B' }],
      c: [['C']],
      rest: new Map([['a', 1]]),
    })
  })

  it('call: is submitted in the turn in which its last dependency ended', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask(add)
    const first = f(1, 1)
    const second = f(first, 1)
    await settled()
    let turns = 0
    setImmediate(() => turns++)
    backend.complete(first, 2)
    await settled()
    expect([backend.jobOf(second).uid, turns]).toEqual([second.uid, 0])
  })

  it('call: tasks that are ready together are submitted in one batch', async () => {
    const batches: number[] = []
    class Counting extends FakeBackend {
      override connect(listener: Parameters<FakeBackend['connect']>[0]) {
        const connection = super.connect(listener)
        return {
          ...connection,
          submit(jobs: Parameters<typeof connection.submit>[0]) {
            batches.push(jobs.length)
            connection.submit(jobs)
          },
        }
      }
    }
    const { flow, backend } = await openEngine({}, new Counting({ name: 'local' }))
    const f = flow.functionTask(add)
    const root = f(0, 0)
    const fanOut = Array.from({ length: 50 }, (_, at) => f(root, at))
    void f(1, 1)
    await settled()
    backend.complete(root, 0)
    await settled()
    expect(batches).toEqual([2, 50])
    expect(fanOut.every(({ state }) => state === 'QUEUED')).toBe(true)
  })

  it('call: runs a diamond, also with a dependency that ended long before', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask(add)
    const top = f(1, 0)
    const [left, right] = [f(top, 1), f(top, 2)]
    const bottom = f(left, right)
    await settled()
    backend.complete(top, 1)
    await settled()
    backend.complete(left, 2)
    backend.complete(right, 3)
    await settled()
    backend.complete(bottom, 5)
    expect(await bottom).toBe(5)
    const later = f(bottom, top)
    await settled()
    expect(backend.closureOf(later)?.()).toBe(6)
  })
})

/** Far more than a stack has room for. */
const many = byRun(20_000, 100_000)

describe('row 32: large graphs', () => {
  it('row 32: a long chain runs without recursion and leaves the loop free', async () => {
    await using flow = await WorkflowEngine.create({ backend: new NoopBackend() })
    const f = flow.functionTask((_before: unknown) => undefined)
    let last: Handle<undefined> = f(0)
    for (let at = 1; at < many; at++) last = f(last)
    let turns = 0
    const count = (): void => void (turns++, last.state === 'CREATED' && setImmediate(count))
    setImmediate(count)
    await last
    expect(last.state).toBe('DONE')
    expect(turns).toBeGreaterThanOrEqual(many / 1000 - 1)
  })

  it('row 32: the failure of the first of a long chain fails all, each with its path', async () => {
    const backend = new FakeBackend()
    await using flow = await WorkflowEngine.create({ backend })
    const f = flow.functionTask((_before: unknown) => undefined)
    const first = f(0)
    const handles: Handle<undefined>[] = [first]
    for (let at = 1; at < many; at++) handles.push(f(handles.at(-1)))
    await settled()
    backend.fail(first, new RangeError('bad seed'))
    const error = await rejection(handles.at(-1) ?? first)
    expect(handles.every(({ state }) => state === 'FAILED')).toBe(true)
    expect((error as DependencyFailedError).path).toHaveLength(many)
    expect(backend.jobs).toHaveLength(1)
  })

  it('row 32: many dependents of one task are submitted in slices', async () => {
    await using flow = await WorkflowEngine.create({ backend: new NoopBackend() })
    const f = flow.functionTask((_before: unknown) => undefined)
    const root = f(0)
    const fan = Array.from({ length: many }, () => f(root))
    await flow.functionTask((..._all: unknown[]) => undefined)(...fan)
    expect(fan.every(({ state }) => state === 'DONE')).toBe(true)
  })
})

describe('row 31: handles that cannot be waited for', () => {
  it('row 31: a handle of another engine fails that one task with ForeignHandleError', async () => {
    const one = await openEngine({ id: 'one' })
    const two = await openEngine({ id: 'two' })
    const foreign = one.flow.functionTask(add, { name: 'theirs' })(1, 2)
    const f = two.flow.functionTask(add)
    const [bad, good] = [f(foreign, 1), f(1, 1)]
    const error = (await rejection(bad)) as TaskFailedError
    expect(error.cause).toMatchObject({ name: 'ValueError', code: 'ForeignHandleError' })
    expect(error.message).toContain(
      `theirs (${foreign.uid}) belongs to the workflow engine one, not to two`,
    )
    await settled()
    two.backend.complete(good, 2)
    expect(await good).toBe(2)
    expect(foreign.state).toBe('QUEUED')
    const types = ['TaskCreated', 'TaskSubmitted', 'TaskFailed']
    expect(typesOf(await two.eventsOf(bad))).toEqual(types)
  })

  it('row 31: a foreign handle that is added after the call is refused', async () => {
    const one = await openEngine({ id: 'one' })
    const two = await openEngine({ id: 'two' })
    const foreign = one.flow.functionTask(add)(1, 2)
    await settled()
    one.backend.complete(foreign, 3)
    const list: unknown[] = []
    const bad = two.flow.functionTask((given: unknown[]) => given)(list)
    list.push(foreign)
    expect((await rejection(bad)).cause).toMatchObject({ code: 'ForeignHandleError' })
    expect(two.backend.jobs).toEqual([])
  })

  it('row 31: a handle inside of its own argument is a named cycle', async () => {
    const { flow } = await openEngine()
    const box: { handle?: unknown } = {}
    const self = flow.functionTask((_box: object) => 1, { name: 'self' })(box)
    box.handle = self
    const error = await rejection(self)
    expect(error.message).toContain(`self (${self.uid}) -> self (${self.uid})`)
    expect(error.cause).toMatchObject({ code: 'DependencyCycleError' })
  })

  it('row 31: a long cycle is shown by its start and its end', async () => {
    const { flow } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1, { name: 'f' })
    const box: { handle?: unknown } = {}
    const first = f(box)
    const ring = [first]
    for (let count = 0; count < 1000; count++) ring.push(f(ring.at(-1)))
    box.handle = ring.at(-1)
    const { message } = await rejection(first)
    const names = (from: number, to?: number) =>
      ring
        .toReversed()
        .slice(from, to)
        .map(({ uid }) => `f (${uid})`)
        .join(' -> ')
    expect(message).toContain(`f (${first.uid}) -> ${names(0, 3)} -> … -> ${names(-4)}`)
    expect(message.length).toBeLessThan(400)
  })

  it('row 31: a cycle through several tasks is named completely', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((_given: unknown) => 1, { name: 'f' })
    const box: { handle?: unknown } = {}
    const root = f(0)
    const a = f([root, box])
    const b = f(a)
    const c = f(b)
    box.handle = c
    await settled()
    backend.complete(root, 1)
    const error = await rejection(a)
    const ring = [a, c, b, a].map(({ uid }) => `f (${uid})`).join(' -> ')
    expect(error.message).toContain(ring)
    expect(((await rejection(c)) as DependencyFailedError).path).toEqual([a.uid, b.uid, c.uid])
  })

  it('call: a handle that is added to an argument after the call is waited for', async () => {
    const { flow, backend } = await openEngine()
    const f = flow.functionTask((given: unknown) => given)
    const box: { handle?: unknown } = {}
    const late = f(0)
    const waits = f(box)
    box.handle = late
    await settled()
    expect(backend.jobs.map(({ uid }) => uid)).toEqual([late.uid])
    backend.complete(late, 'here')
    await settled()
    expect(backend.closureOf(waits)?.()).toEqual({ handle: 'here' })
  })
})
