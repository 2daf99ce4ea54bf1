import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { StateError, TimeoutError, ValueError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { openSession, quick, rejection, turns, untilPrimed } from './open-session.ts'

/** Whether a promise has settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol('pending')
  await turns(2)
  return (await Promise.race([promise.catch(() => {}), Promise.resolve(pending)])) !== pending
}

describe('waitTasks', () => {
  it('waitTasks: resolves with the tasks when all have ended, whatever their end', async () => {
    const { session, backend } = await openSession()
    const tasks = [quick(), quick(), quick()] as const
    await session.submitTasks(tasks)
    const waiting = session.waitTasks(tasks)
    backend.complete(tasks[0])
    backend.fail(tasks[1], new Error('no'))
    expect(await isSettled(waiting)).toBe(false)
    backend.report(backend.jobOf(tasks[2]), { kind: 'cancel', reason: 'x' })
    expect(await waiting).toBe(tasks)
    expect(await session.waitTasks(tasks)).toBe(tasks)
    expect(await session.waitTasks([])).toEqual([])
  })

  it('waitTasks: a closure that waits releases its slot, so nested tasks can run', async () => {
    await using session = new Session([await ConcurrentBackend.create({ workers: 1 })])
    const tasks = Array.from(
      { length: 1000 },
      () =>
        new ComputeTask({
          function: async () => {
            const inner = new ComputeTask({ function: () => 1 })
            await session.submitTasks([inner])
            await session.waitTasks([inner])
            return inner.returnValue
          },
        }),
    )
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    expect(tasks.every(({ returnValue }) => returnValue === 1)).toBe(true)
  })

  it('waitTasks: a task that is named twice is waited for once', async () => {
    const { session, backend } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    const waiting = session.waitTasks([task, task])
    backend.complete(task)
    await waiting
  })

  it('waitTasks: a time-out leaves the tasks running and no timer behind', async () => {
    const { session, backend, clock } = await openSession()
    await untilPrimed(clock)
    const [ended, open] = [quick(), quick()]
    await session.submitTasks([ended, open])
    backend.complete(ended)
    const timers = clock.pendingTimers
    const waiting = rejection(session.waitTasks([ended, open], { timeoutSeconds: 2 }))
    await clock.advance(1999)
    expect(await isSettled(waiting)).toBe(false)
    await clock.advance(1)
    const error = await waiting
    expect(error).toBeInstanceOf(TimeoutError)
    expect(error.message).toBe('not all tasks ended within 2 s')
    expect(clock.pendingTimers).toBe(timers)
    expect([open.state, backend.cancels]).toEqual(['QUEUED', []])
    const again = session.waitTasks([open], { timeoutSeconds: 60 })
    backend.complete(open, 'after all')
    await again
    expect(await open).toBe('after all')
    expect(clock.pendingTimers).toBe(timers)
  })

  it('waitTasks: its signal ends the wait, not the tasks, and no listener is left', async () => {
    const { session, backend } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    const stop = new AbortController()
    const waiting = rejection(session.waitTasks([task], { signal: stop.signal }))
    await turns(1)
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(1)
    const reason = new Error('bored')
    stop.abort(reason)
    expect(await waiting).toBe(reason)
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0)
    expect([task.state, backend.cancels]).toEqual(['QUEUED', []])
    expect(await rejection(session.waitTasks([task], { signal: stop.signal }))).toBe(reason)
    backend.complete(task)
    // A task that has ended needs no waiting, so no signal can interrupt it.
    await session.waitTasks([task], { signal: stop.signal })
  })

  // Beyond 250 they wait for their hand-over, beyond 10,000 for their check.
  it.each([1000, 25_000])(
    'waitTasks: waits for %i tasks that are being submitted',
    async (count) => {
      await using session = new Session([new NoopBackend()])
      const tasks = Array.from({ length: count }, () => quick())
      const submitting = session.submitTasks(tasks)
      expect(tasks.at(-1)?.state).toBe('CREATED')
      expect(await session.waitTasks(tasks)).toBe(tasks)
      expect(tasks.every(({ state }) => state === 'DONE')).toBe(true)
      await submitting
    },
  )

  it('waitTasks: any end of a task that was being submitted counts', async () => {
    const { session, backend } = await openSession()
    const tasks = Array.from({ length: 600 }, () => quick())
    const submitting = session.submitTasks(tasks)
    const [failed, canceled] = tasks.slice(-2)
    const waiting = session.waitTasks(tasks)
    if (canceled !== undefined) session.cancel(canceled)
    await submitting
    if (failed !== undefined) backend.fail(failed, new Error('no'))
    for (const task of tasks.slice(0, -2)) backend.complete(task)
    await waiting
    expect([failed?.state, canceled?.state]).toEqual(['FAILED', 'CANCELED'])
  })

  it('waitTasks: resolves when close() ends the tasks of a submission', async () => {
    const { session } = await openSession()
    const tasks = Array.from({ length: 1000 }, () => quick())
    const submitting = rejection(session.submitTasks(tasks))
    const waiting = session.waitTasks(tasks)
    await session.close()
    expect(await submitting).toMatchObject({ code: 'SessionClosedError' })
    expect(await waiting).toBe(tasks)
    expect(new Set(tasks.map(({ state }) => state))).toEqual(new Set(['CANCELED']))
  })

  it('waitTasks: rejects when the long list that contains the task is refused', async () => {
    const { session } = await openSession()
    const tasks = Array.from({ length: 15_000 }, () => quick())
    tasks.push(quick({ backend: 'locl' }))
    const submitting = rejection(session.submitTasks(tasks))
    const waiting = rejection(session.waitTasks(tasks))
    expect(await submitting).toMatchObject({ code: 'UnknownBackendError' })
    expect(await waiting).toMatchObject({ name: 'StateError' })
  })

  it.each([1000, 10_500])(
    'waitTasks: time limit and signal work while %i tasks are submitted',
    async (count) => {
      const { session, clock } = await openSession()
      await untilPrimed(clock)
      const tasks = Array.from({ length: count }, () => quick())
      const submitting = session.submitTasks(tasks)
      const timers = clock.pendingTimers
      const stop = new AbortController()
      const late = rejection(session.waitTasks(tasks, { timeoutSeconds: 1 }))
      const stopped = rejection(session.waitTasks(tasks, { signal: stop.signal }))
      stop.abort(new Error('bored'))
      await clock.advance(1000)
      expect(await late).toBeInstanceOf(TimeoutError)
      expect(await stopped).toBe(stop.signal.reason)
      expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0)
      expect(clock.pendingTimers).toBe(timers)
      await submitting
      expect(tasks.at(-1)?.state).toBe('QUEUED')
    },
  )

  it('waitTasks: refuses tasks that were not submitted to this session', async () => {
    const [one, two] = [await openSession(), await openSession()]
    const [mine, theirs, nobodys] = [quick({ uid: 'a' }), quick({ uid: 'a' }), quick()]
    await one.session.submitTasks([mine])
    await two.session.submitTasks([theirs])
    for (const task of [theirs, nobodys]) {
      const error = await rejection(one.session.waitTasks([mine, task]))
      expect(error).toBeInstanceOf(StateError)
      expect(error.message).toBe(`tasks[1] (${task.uid}) was not submitted to this session`)
    }
  })

  it('waitTasks: wrong arguments are refused', async () => {
    const { session } = await openSession()
    const wrong: [unknown, object | undefined, string][] = [
      ['x', {}, 'tasks'],
      [[7], {}, 'tasks[0]'],
      [[], { timeout: 1 }, 'timeout'],
      [[], { timeoutSeconds: -1 }, 'timeoutSeconds'],
      [[], { timeoutSeconds: Number.NaN }, 'timeoutSeconds'],
      [[], { timeoutSeconds: -Infinity }, 'timeoutSeconds'],
      [[], { signal: {} }, 'signal'],
    ]
    for (const [tasks, options, field] of wrong) {
      const error = await rejection(session.waitTasks(tasks as never, options))
      expect(error).toBeInstanceOf(ValueError)
      expect(error).toMatchObject({ field })
    }
  })

  it('waitTasks: resolves when the session is closed', async () => {
    const { session } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    const waiting = session.waitTasks([task])
    await session.close()
    await waiting
    expect(task.state).toBe('CANCELED')
  })
})
