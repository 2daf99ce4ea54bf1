import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { StateError, TimeoutError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { openSession, quick, rejection, untilPrimed } from './open-session.ts'

describe('asCompleted', () => {
  it('asCompleted: yields the tasks themselves in the order of their ends', async () => {
    const { session, backend } = await openSession()
    const tasks = [quick(), quick(), quick(), quick()] as const
    await session.submitTasks(tasks)
    backend.complete(tasks[3])
    const found: unknown[] = []
    backend.complete(tasks[2])
    const reading = (async () => {
      for await (const task of session.asCompleted([...tasks, tasks[0]])) found.push(task)
    })()
    backend.fail(tasks[0], new Error('no'))
    session.cancel(tasks[1])
    backend.report(backend.jobOf(tasks[1]), { kind: 'cancel', reason: 'x' })
    await reading
    expect(found).toEqual([tasks[3], tasks[2], tasks[0], tasks[1]])
    expect(tasks.map(({ state }) => state)).toEqual(['FAILED', 'CANCELED', 'DONE', 'DONE'])
  })

  it('asCompleted: keeps the order of ends also for a slow reader', async () => {
    const { session, backend } = await openSession()
    const tasks = Array.from({ length: 100 }, () => quick())
    await session.submitTasks(tasks)
    const iterator = session.asCompleted(tasks)
    for (const task of tasks.toReversed()) backend.complete(task)
    const uids: string[] = []
    for await (const { uid } of iterator) uids.push(uid)
    expect(uids).toEqual(tasks.toReversed().map(({ uid }) => uid))
  })

  it('asCompleted: waits for 25,000 tasks that are being submitted', async () => {
    await using session = new Session([new NoopBackend()])
    const tasks = Array.from({ length: 25_000 }, () => quick())
    const submitting = session.submitTasks(tasks)
    const found = new Set<unknown>()
    for await (const task of session.asCompleted(tasks)) found.add(task)
    expect(found.size).toBe(25_000)
    await submitting
  })

  it('asCompleted: leaving the loop leaves no listener, and no task is harmed', async () => {
    const { session, backend, clock } = await openSession()
    await untilPrimed(clock)
    const timers = clock.pendingTimers
    const tasks = [quick(), quick()] as const
    await session.submitTasks(tasks)
    const { signal } = new AbortController()
    const options = { signal, timeoutSeconds: 5 }
    const iterator = session.asCompleted(tasks, options)
    expect([clock.pendingTimers, getEventListeners(signal, 'abort').length]).toEqual([
      timers + 1,
      1,
    ])
    backend.complete(tasks[0])
    for await (const task of iterator) {
      expect(task).toBe(tasks[0])
      break
    }
    expect([clock.pendingTimers, getEventListeners(signal, 'abort').length]).toEqual([timers, 0])
    expect([tasks[1].state, backend.cancels]).toEqual(['QUEUED', []])
    expect(await iterator.next()).toEqual({ done: true, value: undefined })
  })

  it('asCompleted: a time-out and a signal end the iteration, not the tasks', async () => {
    const { session, backend, clock } = await openSession()
    const [ended, open] = [quick(), quick()]
    await session.submitTasks([ended, open])
    const timed = session.asCompleted([ended, open], { timeoutSeconds: 2 })
    const stop = new AbortController()
    const stoppable = session.asCompleted([ended, open], { signal: stop.signal })
    backend.complete(ended)
    expect((await timed.next()).value).toBe(ended)
    expect((await stoppable.next()).value).toBe(ended)
    const [late, stopped] = [rejection(timed.next()), rejection(stoppable.next())]
    await clock.advance(2000)
    expect(await late).toBeInstanceOf(TimeoutError)
    const reason = new Error('enough')
    stop.abort(reason)
    expect(await stopped).toBe(reason)
    expect([open.state, backend.cancels]).toEqual(['QUEUED', []])
  })

  it('asCompleted: names a task that was not submitted, and what is no task', async () => {
    const { session } = await openSession()
    const other = new ComputeTask({ function: () => 1 })
    expect(() => session.asCompleted([other])).toThrow(StateError)
    expect(() => session.asCompleted([5 as never])).toThrow(
      expect.objectContaining({ field: 'tasks[0]' }),
    )
    expect(() => session.asCompleted([], { timeout: 5 } as never)).toThrow(/timeoutSeconds/)
  })
})
