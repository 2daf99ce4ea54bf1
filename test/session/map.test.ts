import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { TaskFailedError } from '../../src/foundation/task-errors.ts'
import { Session } from '../../src/session/session.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'
import { attribute, openSession, rejection, turns } from './open-session.ts'

describe('map', () => {
  it('map: gives typed values in the order of the list; a task gets its item alone', async () => {
    await using session = new Session([await ConcurrentBackend.create({ workers: 2 })])
    const squares: number[] = await session.map(square, [3, 1, 2])
    expect(squares).toEqual([9, 1, 4])
    const counted = await session.map((...given: unknown[]) => given.length, ['a', 'b'])
    expect(counted).toEqual([1, 1])
    expect(await session.map(square, [])).toEqual([])
    // oxlint-disable-next-line no-sparse-arrays -- a hole is an item
    expect(await session.map((item: unknown) => typeof item, [, 1])).toEqual([
      'undefined',
      'number',
    ])
    const settle: boolean = squares.length > 1
    const either = await session.map(square, [2], { settle })
    expect(either).toEqual([{ status: 'fulfilled', value: 4 }])
  })

  it('map: uid, name and the options of tasks hold for each item', async () => {
    const { session, backend, events } = await openSession()
    const mapping = session.map((item: string) => item, ['a', 'b'], {
      uid: (item, index) => `${item}-${index}`,
      name: (item) => `letter ${item}`,
      priority: 3,
    })
    await turns(2)
    expect(backend.jobs.map(({ uid, spec }) => [uid, spec.priority])).toEqual([
      ['a-0', 3],
      ['b-1', 3],
    ])
    for (const job of backend.jobs) backend.report(job, { kind: 'complete', value: job.uid })
    expect(await mapping).toEqual(['a-0', 'b-1'])
    const created = (await events()).filter(({ event_type }) => event_type === 'TaskCreated')
    expect(created.map((event) => attribute(event, 'task_name'))).toEqual(['letter a', 'letter b'])
  })

  it('map: rejects with the failure that is first in the list, once all have ended', async () => {
    const { session, backend } = await openSession()
    let isSettled = false
    const mapping = rejection(session.map((item: number) => item, [0, 1, 2])).finally(() => {
      isSettled = true
    })
    await turns(2)
    const [first, second, third] = backend.jobs
    if (first === undefined || second === undefined || third === undefined) throw new Error('none')
    backend.report(third, { kind: 'fail', error: new RangeError('third') })
    backend.report(second, { kind: 'fail', error: new RangeError('second') })
    await turns(2)
    expect(isSettled).toBe(false)
    backend.report(first, { kind: 'complete', value: 1 })
    const error = await mapping
    expect(error).toBeInstanceOf(TaskFailedError)
    expect(error.cause).toMatchObject({ message: 'second' })
  })

  it('map: with `settle` it gives the outcomes as allSettled does', async () => {
    await using session = new Session([await ConcurrentBackend.create({ workers: 1 })])
    const work = (item: number): number => {
      if (item === 2) throw new RangeError('no')
      return item
    }
    const outcomes = await session.map(work, [1, 2], { settle: true })
    expect(outcomes).toEqual([
      { status: 'fulfilled', value: 1 },
      { status: 'rejected', reason: expect.any(TaskFailedError) },
    ])
  })

  it.each([
    ['fn', [5, []]],
    ['list', [square, 5]],
    ['settle', [square, [1], { settle: 1 }]],
    ['setle', [square, [1], { setle: true }]],
    ['args', [square, [1], { args: [3] }]],
  ])('map: a wrong `%s` is named', async (field, args) => {
    await using session = new Session([new NoopBackend()])
    const map = session.map.bind(session) as (...given: unknown[]) => Promise<unknown>
    const error = await rejection(map(...args))
    expect(error).toMatchObject({ name: 'ValueError', field })
  })

  it('map: a uid that two items share names both, and no task runs', async () => {
    const { session, backend } = await openSession()
    const error = await rejection(session.map((item: number) => item, [1, 2], { uid: 'same' }))
    expect(error.message).toContain('tasks[1]')
    expect(backend.jobs).toEqual([])
  })
})
