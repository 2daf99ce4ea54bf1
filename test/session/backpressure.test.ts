import { describe, expect, it } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { openSession, quick, rejection, turns, typesOf } from './open-session.ts'
import { byRun } from '../long-run.ts'

const many = (count: number): AnyTask[] => Array.from({ length: count }, () => quick())

/** How many turns the loop made until the promise settled. */
async function turnsDuring(promise: Promise<unknown>): Promise<number> {
  const running = { isPending: true }
  const stop = (): void => void (running.isPending = false)
  promise.then(stop, stop)
  let count = 0
  for (; running.isPending; count++) await turns(1)
  return count
}

describe('a large submission', () => {
  it('row 5: many tasks in one call leave the event loop its turns', async () => {
    await using session = new Session([new NoopBackend()])
    const count = byRun(20_000, 1_000_000)
    const tasks = many(count)
    const submitted = session.submitTasks(tasks)
    const between = await turnsDuring(submitted)
    expect(await submitted).toBe(tasks)
    expect(between).toBeGreaterThanOrEqual(count / 1000)
    expect(tasks.every(({ state }) => state === 'DONE')).toBe(true)
  })

  it('row 5: tasks that are submitted one by one leave the loop free', async () => {
    await using session = new Session([new NoopBackend()])
    const submitAll = async (): Promise<void> => {
      for (const task of many(5000)) await session.submitTasks([task])
    }
    expect(await turnsDuring(submitAll())).toBeGreaterThanOrEqual(5)
  })

  it('row 25: a large submission waits at 100,000 open tasks, then continues', async () => {
    const backend = new FakeBackend()
    const session = new Session([backend])
    const tasks = many(102_000)
    let isDone = false
    const submitted = session.submitTasks(tasks).then(() => (isDone = true))
    while (backend.jobs.length < 100_000) await backend.nextSubmission()
    await turns(20)
    expect(backend.jobs.length).toBe(100_000)
    expect(isDone).toBe(false)
    expect(tasks[100_000]?.state).toBe('CREATED')

    const end = (from: number, until: number): void => {
      for (const task of tasks.slice(from, until)) backend.complete(task)
    }
    end(0, 1000)
    while (backend.jobs.length < 101_000) await backend.nextSubmission()
    await turns(20)
    expect(backend.jobs.length).toBe(101_000)
    expect(isDone).toBe(false)
    end(1000, 2000)
    await submitted
    expect(backend.jobs.length).toBe(102_000)

    // Row 25: single tasks wait for room, too, and close() rejects what waits.
    let count = 0
    const singles = many(3).map((task) => session.submitTasks([task]).then(() => count++))
    await turns(20)
    expect([count, backend.jobs.length]).toEqual([0, 102_000])
    end(2000, 3000)
    await Promise.all(singles)
    expect(backend.jobs.length).toBe(102_003)
    const tooMany = rejection(session.submitTasks(many(2000)))
    while (backend.jobs.length < 103_000) await backend.nextSubmission()
    await turns(2)
    await session.close()
    expect(await tooMany).toMatchObject({ code: 'SessionClosedError' })
    expect(backend.jobs.length).toBe(103_000)
  })

  it('submission: tasks can be awaited and canceled before they are opened', async () => {
    const { session, backend, eventsOf } = await openSession()
    const tasks = many(3000)
    const submitted = session.submitTasks(tasks)
    const last = tasks.at(-1) ?? quick()
    const canceled = rejection(last)
    await turns(1)
    expect(last.state).toBe('CREATED')
    expect(session.cancel(last, 'changed my mind')).toBe(true)
    expect(session.cancel(last)).toBe(false)
    await submitted
    expect(await canceled).toMatchObject({ reason: 'changed my mind' })
    expect(backend.jobs).toHaveLength(2999)
    expect(typesOf(await eventsOf(last))).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskCanceled'])
  })
})

describe('close() during a submission', () => {
  // 25,000 tasks are still being checked when the session is closed, and nothing is opened.
  it.each([3500, 25_000])(
    'row 25: close() during the submission of %i tasks ends all of them CANCELED',
    async (count) => {
      const { session, backend, all } = await openSession()
      const tasks = many(count)
      const submitted = rejection(session.submitTasks(tasks))
      const firstEnd = rejection(tasks[0] ?? quick())
      await session.close()
      expect(await submitted).toMatchObject({ code: 'SessionClosedError', name: 'StateError' })
      const canceled = { name: 'TaskCanceledError', reason: 'session closed' }
      expect(await firstEnd).toMatchObject(canceled)
      expect(tasks.at(-1)?.error).toMatchObject(canceled)
      expect(new Set(tasks.map(({ state }) => state))).toEqual(new Set(['CANCELED']))
      expect(backend.jobs.length).toBe(count > 10_000 ? 0 : 250)
      const types = typesOf(all)
      for (const type of ['TaskCreated', 'TaskSubmitted', 'TaskCanceled']) {
        expect(types.filter((one) => one === type)).toHaveLength(count)
      }
      expect(types.at(-1)).toBe('SessionEnded')
      const late = rejection(session.submitTasks([quick()]))
      expect(await late).toMatchObject({ code: 'SessionClosedError', name: 'StateError' })
    },
  )

  it('row 25: close() cancels a submission that waits for the one before it', async () => {
    const { session, backend } = await openSession()
    const [tasks, queued] = [many(3500), many(10)]
    const submitted = [session.submitTasks(tasks), session.submitTasks(queued)].map(rejection)
    const waited = session.waitTasks(queued)
    await session.close()
    for (const one of submitted) expect(await one).toMatchObject({ code: 'SessionClosedError' })
    expect(await waited).toBe(queued)
    expect(new Set(queued.map(({ state }) => state))).toEqual(new Set(['CANCELED']))
    expect(backend.jobs).toHaveLength(250)
  })

  it('row 25: a wrong task in a list that is being checked at close() is still named', async () => {
    const { session, backend } = await openSession()
    const tasks = [...many(15_000), quick({ backend: 'locl' })]
    const submitted = rejection(session.submitTasks(tasks))
    await session.close()
    expect(await submitted).toMatchObject({ code: 'UnknownBackendError' })
    expect(tasks[0]?.state).toBe('CREATED')
    expect(backend.jobs).toEqual([])
  })
})
