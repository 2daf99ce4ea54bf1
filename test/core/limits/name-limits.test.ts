import { describe, expect, it, onTestFinished } from 'vitest'
import { type NameLimitOptions, NameLimits } from '../../../src/core/limits/name-limits.ts'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { FakeBackend } from '../../../src/testing/fake-backend.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { WorkflowEngine } from '../../../src/workflow/workflow-engine.ts'

const plain = { priority: 0, isRetry: false }

function openLimits(limits: NameLimitOptions) {
  const clock = new ManualClock(1000)
  const released: string[] = []
  const all = new NameLimits<string>(limits, clock, (item) => void released.push(item))
  const add = (item: string, about = plain) => {
    const attempt = all.add('fetch', { item, ...about })
    if (attempt === null) throw new Error('no limit')
    all.advance(attempt)
    return attempt
  }
  return { all, clock, released, add }
}

describe('limits of a name', () => {
  it('limits: at most `concurrent` at a time, by priority, retries first, then in order', () => {
    const { all, released, add } = openLimits({ fetch: { concurrent: 1 } })
    const first = add('a')
    add('b')
    add('retry', { priority: 0, isRetry: true })
    add('urgent', { priority: 1, isRetry: false })
    expect(released).toEqual(['a'])
    all.start(first)
    all.end(first)
    all.end(first)
    expect(released).toEqual(['a', 'urgent'])
    expect(all.has('other')).toBe(false)
    expect(all.add('other', { item: 'x', ...plain })).toBeNull()
  })

  it('limits: `perSecond` counts starts, and what was released but has not started', async () => {
    const { all, clock, released, add } = openLimits({ fetch: { perSecond: 2 } })
    const [a, b] = [add('a'), add('b')]
    add('c')
    await clock.advance(5000)
    expect(released).toEqual(['a', 'b'])
    all.start(a)
    all.start(b)
    all.end(a)
    await clock.advance(999)
    expect(released).toEqual(['a', 'b'])
    await clock.advance(1)
    expect(released).toEqual(['a', 'b', 'c'])
  })

  it('limits: `perSecond` waits for no end of a task', async () => {
    const { all, clock, released, add } = openLimits({ fetch: { perSecond: 1 } })
    const first = add('a')
    add('b')
    all.start(first)
    await clock.advance(1000)
    expect(released).toEqual(['a', 'b'])
  })

  it('limits: less than one per second is one start within a longer time', async () => {
    const { all, clock, released, add } = openLimits({ fetch: { perSecond: 0.5 } })
    all.start(add('a'))
    add('b')
    await clock.advance(1999)
    expect(released).toEqual(['a'])
    await clock.advance(1)
    expect(released).toEqual(['a', 'b'])
  })

  it('limits: one that ends before its start does not count as a start', () => {
    const { all, released, add } = openLimits({ fetch: { perSecond: 1 } })
    const first = add('a')
    add('b')
    all.end(first)
    expect(released).toEqual(['a', 'b'])
  })
})

async function openSession(limits: NameLimitOptions) {
  const clock = new ManualClock(1000)
  const backends = [new FakeBackend({ name: 'one' }), new FakeBackend({ name: 'two' })] as const
  const session = new Session([...backends], { clock, limits })
  onTestFinished(() => session.close())
  const tasks = ['one', 'two', 'one'].map(
    (backend, at) =>
      new ComputeTask({ executable: 'curl', name: 'fetch', uid: `f${at}`, backend, retries: 1 }),
  )
  const other = new ComputeTask({ executable: 'true', backend: 'one' })
  await session.submitTasks([...tasks, other])
  return { clock, backends, session, tasks, other }
}

describe('limits of a session', () => {
  it('limits: bound the tasks of a name on all backends, and leave others alone', async () => {
    const { backends, tasks, other } = await openSession({
      fetch: { concurrent: 1 },
      none: {
        perSecond: 1,
      },
    })
    const [one, two] = backends
    expect([...one.jobs, ...two.jobs].map(({ uid }) => uid)).toEqual(['f0', other.uid])
    expect(tasks.map(({ state }) => state)).toEqual(['QUEUED', 'SUBMITTED', 'SUBMITTED'])
    one.complete(tasks[0] as ComputeTask, {})
    expect(two.jobs.map(({ uid }) => uid)).toEqual(['f1'])
    expect(tasks[2]?.state).toBe('SUBMITTED')
  })

  it('limits: the tasks of a list begin by priority', async () => {
    const backend = new FakeBackend()
    const limits = { fetch: { concurrent: 2 } }
    const session = new Session([backend], { clock: new ManualClock(1000), limits })
    onTestFinished(() => session.close())
    const tasks = [0, 1, 2, 3].map(
      (priority) =>
        new ComputeTask({ executable: 'curl', name: 'fetch', uid: `p${priority}`, priority }),
    )
    await session.submitTasks(tasks)
    expect(backend.jobs.map(({ uid }) => uid)).toEqual(['p3', 'p2'])
  })

  it('limits: a retry counts as a start, and goes before new tasks', async () => {
    const { clock, backends, tasks } = await openSession({ fetch: { perSecond: 1 } })
    const [one, two] = backends
    const [first] = tasks as [ComputeTask]
    one.start(first)
    one.fail(first, new Error('again'))
    expect([one.jobs.length, two.jobs.length]).toEqual([2, 0])
    await clock.advance(1000)
    expect(one.jobs.at(-1)).toMatchObject({ uid: 'f0', attempt: 2 })
    expect(two.jobs).toEqual([])
  })

  it('limits: tasks that wait for theirs can be canceled, and end with the session', async () => {
    const { backends, session, tasks } = await openSession({ fetch: { concurrent: 1 } })
    const [, second, third] = tasks as [ComputeTask, ComputeTask, ComputeTask]
    expect(session.cancel(second)).toBe(true)
    expect(second.state).toBe('CANCELED')
    await session.close()
    expect(third.state).toBe('CANCELED')
    expect(backends[1].jobs).toEqual([])
  })

  it('limits: hold in a workflow, by the name of each call', async () => {
    const clock = new ManualClock(1000)
    const backend = new FakeBackend({ name: 'local' })
    const limits = { 'fetch a': { concurrent: 1 } }
    const flow = await WorkflowEngine.create({ backend, clock, limits })
    onTestFinished(() => flow.shutdown())
    const fetches = flow.executableTask((url: string) => ['curl', url])
    const handles = ['fetch a', 'fetch a', 'fetch b'].map((name) => fetches.with({ name })('u'))
    await Promise.resolve()
    await clock.advance(0)
    expect(handles.map(({ state }) => state)).toEqual(['QUEUED', 'SUBMITTED', 'QUEUED'])
  })

  it.each([
    [{ fetch: {} }, 'limits.fetch'],
    [{ fetch: { concurrent: 0 } }, 'limits.fetch.concurrent'],
    [{ fetch: { perSecond: 0 } }, 'limits.fetch.perSecond'],
    [{ fetch: { persecond: 1 } }, 'limits.fetch.persecond'],
    [{ fetch: 4 }, 'limits.fetch'],
    [4, 'limits'],
    [new Map([['fetch', { concurrent: 1 }]]), 'limits'],
    [Object.create({ fetch: { concurrent: 1 } }) as object, 'limits'],
  ])('limits: %j is an error that names the field', (limits, field) => {
    const create = (): Session => new Session([new FakeBackend()], { limits } as never)
    expect(create).toThrow(expect.objectContaining({ field }))
  })

  it.each([{ concurrent: 0 }, { unknown: 1 }, {}])(
    'limits: a long name with control characters is short and escaped in the error of %j',
    (limit) => {
      const name = `a\u001b[2J${'x'.repeat(200_000)}`
      const create = (): Session => new Session([new FakeBackend()], { limits: { [name]: limit } })
      expect(create).toThrow(/^(?=.*`?limits\.a\\u001b\[2Jx+)[^\p{Cc}]{1,500}$/u)
    },
  )
})
