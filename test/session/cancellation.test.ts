import { EventEmitter, getEventListeners } from 'node:events'
import { describe, expect, it, onTestFinished } from 'vitest'
import { TaskCanceledError } from '../../src/foundation/task-errors.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { attribute, openSession, quick, rejection, turns, typesOf } from './open-session.ts'

const cancelReport = { kind: 'cancel', reason: 'the backend says so' } as const
const tillQueued = ['TaskCreated', 'TaskSubmitted', 'TaskQueued']

describe('cancellation', () => {
  it('row 23: a canceled task that waits ends without RUNNING', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    await clock.advance(1000)
    expect(session.cancel(task, 'changed my mind')).toBe(true)
    expect(backend.cancels).toEqual([{ job: backend.jobOf(task), reason: 'changed my mind' }])
    expect(task.state).toBe('QUEUED')
    backend.report(backend.jobOf(task), cancelReport)
    const error = await rejection(task)
    expect(error).toBeInstanceOf(TaskCanceledError)
    expect(error).toMatchObject({ uid: task.uid, reason: 'changed my mind' })
    expect([task.state, task.error]).toEqual(['CANCELED', error])
    const events = await eventsOf(task)
    expect(typesOf(events)).toEqual([...tillQueued, 'TaskCanceled'])
    expect(events.at(-1)).toMatchObject({ duration_seconds: 0, node_id: null })
    expect(events.at(-1)?.attributes).toMatchObject({
      incomplete_lifecycle: true,
      reason: 'changed my mind',
    })
  })

  it('row 23: the cancellation of a running task has its duration', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    backend.start(task)
    await clock.advance(1500)
    session.cancel(task)
    backend.report(backend.jobOf(task), cancelReport)
    await rejection(task)
    const end = (await eventsOf(task)).at(-1)
    expect(end).toMatchObject({ event_type: 'TaskCanceled', duration_seconds: 1.5 })
    expect(end?.attributes).not.toHaveProperty('incomplete_lifecycle')
    expect(attribute(end, 'reason')).toBe('canceled by the caller')
  })

  it('row 23: cancel() is true once, and false after the end', async () => {
    const { session, backend, eventsOf } = await openSession()
    const [task, ended, unknown] = [quick(), quick(), quick()]
    await session.submitTasks([task, ended])
    expect([session.cancel(task), session.cancel(task)]).toEqual([true, false])
    backend.complete(ended)
    expect(session.cancel(ended)).toBe(false)
    expect(backend.cancels).toHaveLength(1)
    backend.report(backend.jobOf(task), cancelReport)
    expect(session.cancel(task)).toBe(false)
    expect(typesOf(await eventsOf(task)).filter((type) => type === 'TaskCanceled')).toHaveLength(1)
    expect(session.cancel(unknown)).toBe(false)
    expect(() => session.cancel({} as never)).toThrow(ValueError)
    expect(() => session.cancel(task, '')).toThrow(ValueError)
  })

  it("row 23: cancel() ignores another session's task with the same uid", async () => {
    const [one, two] = [await openSession(), await openSession()]
    const [mine, theirs] = [quick({ uid: 'a' }), quick({ uid: 'a' })]
    await one.session.submitTasks([mine])
    await two.session.submitTasks([theirs])
    expect(one.session.cancel(theirs)).toBe(false)
    expect(one.backend.cancels).toEqual([])
  })

  // The cancel is asked for before step `askedAt` of the reports. `true` promises CANCELED.
  const ends = { complete: 'TaskCompleted', fail: 'TaskFailed', cancel: 'TaskCanceled' } as const
  for (const first of ['complete', 'fail', 'cancel'] as const) {
    for (const second of ['complete', 'fail', 'cancel', 'start'] as const) {
      for (const askedAt of [0, 1, 2, 3]) {
        it(`row 23: asked at ${askedAt}, ${first} then ${second}: one end`, async () => {
          const { session, backend, telemetry, eventsOf } = await openSession()
          const task = quick()
          await session.submitTasks([task])
          const steps = [
            () => backend.start(task),
            () => backend.report(backend.jobOf(task), reports[first]),
            () => backend.report(backend.jobOf(task), reports[second]),
          ]
          const answers: boolean[] = []
          for (const [at, step] of steps.entries()) {
            if (at === askedAt) answers.push(session.cancel(task))
            step()
          }
          if (askedAt === 3) answers.push(session.cancel(task))
          expect(answers).toEqual([askedAt < 2])
          const end = askedAt < 2 ? 'TaskCanceled' : ends[first]
          const expected = [...tillQueued, 'TaskStarted', end]
          expect(typesOf(await eventsOf(task))).toEqual(expected)
          await session.waitTasks([task])
          await turns(1)
          expect(typesOf(await eventsOf(task))).toEqual(expected)
          const isResult = (kind: string): boolean => kind === 'complete' || kind === 'fail'
          const dropped = [first, second].filter((kind, at) => {
            return isResult(kind) && (at === 1 || askedAt < 2)
          })
          expect(telemetry.summary().late_results).toBe(dropped.length)
        })
      }
    }
  }

  it('row 23: a cancel between two attempts ends the retries', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const task = quick({ retries: 3 })
    await session.submitTasks([task])
    backend.start(task)
    await clock.advance(1000)
    backend.fail(task, new Error('once'))
    await clock.advance(5000)
    expect(session.cancel(task, 'enough')).toBe(true)
    expect(backend.cancels.map(({ job }) => job.attempt)).toEqual([2])
    backend.report(backend.jobOf(task), cancelReport)
    const events = await eventsOf(task)
    expect(typesOf(events).slice(3)).toEqual(['TaskStarted', 'tutti.TaskAttempt', 'TaskCanceled'])
    // From TaskStarted on, even while no attempt runs.
    expect(events.at(-1)).toMatchObject({ duration_seconds: 6 })
    expect(events.at(-1)?.attributes).not.toHaveProperty('worker_id')
    expect(events.at(-1)?.attributes).not.toHaveProperty('incomplete_lifecycle')
    expect(backend.jobs).toHaveLength(2)
  })

  it('row 23: a canceled task that fails first is not retried', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 3 })
    await session.submitTasks([task])
    backend.start(task)
    session.cancel(task)
    backend.fail(task, new Error('just before'))
    expect(task.state).toBe('CANCELED')
    expect(backend.jobs).toHaveLength(1)
    expect(typesOf(await eventsOf(task)).at(-1)).toBe('TaskCanceled')
  })

  it('row 23: close() ends what the backend never canceled', async () => {
    class Deaf extends FakeBackend {
      override connect(...args: Parameters<FakeBackend['connect']>) {
        return { ...super.connect(...args), release: () => Promise.resolve() }
      }
      override close(): Promise<void> {
        return Promise.resolve()
      }
    }
    const backend = new Deaf()
    const session = new Session([backend])
    const [canceled, other] = [quick(), quick()]
    await session.submitTasks([canceled, other])
    session.cancel(canceled, 'too slow')
    await turns()
    expect(canceled.state).toBe('QUEUED')
    await session.close()
    expect(canceled.error).toMatchObject({ reason: 'too slow' })
    expect(other.error).toMatchObject({ reason: 'session closed' })
    backend.complete(canceled)
    expect(canceled.state).toBe('CANCELED')
  })
})

describe('abort signals of tasks', () => {
  it('row 24: an aborted signal cancels at once, and the backend gets no job', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ signal: AbortSignal.abort(new Error('too late')) })
    await session.submitTasks([task])
    expect(task.state).toBe('CANCELED')
    expect(await rejection(task)).toMatchObject({ reason: 'too late' })
    expect(backend.jobs).toEqual([])
    const events = await eventsOf(task)
    expect(typesOf(events)).toEqual(['TaskCreated', 'TaskSubmitted', 'TaskCanceled'])
    expect(events.at(-1)?.attributes).toMatchObject({
      incomplete_lifecycle: true,
      reason: 'too late',
    })
  })

  it('row 24: one signal for 10,000 tasks has one listener, and none in the end', async () => {
    const warnings: Error[] = []
    const hear = (warning: Error): void => void warnings.push(warning)
    process.on('warning', hear)
    onTestFinished(() => void process.off('warning', hear))
    const { session, backend } = await openSession()
    const stop = new AbortController()
    const tasks = Array.from({ length: 10_000 }, () => quick({ signal: stop.signal }))
    await session.submitTasks(tasks)
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(1)
    for (const task of tasks.slice(0, 5000)) backend.complete(task)
    stop.abort('stop all')
    expect(backend.cancels.length).toBe(5000)
    expect(backend.cancels[0]?.reason).toBe('stop all')
    for (const { job } of backend.cancels) backend.report(job, cancelReport)
    await session.waitTasks(tasks)
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0)
    expect(tasks.filter(({ state }) => state === 'CANCELED').length).toBe(5000)
    await turns()
    expect(warnings).toEqual([])
    expect(EventEmitter.defaultMaxListeners).toBeLessThan(10_000)
  })

  it('row 24: an aborted task ends CANCELED, whatever its backend says', async () => {
    const { session, backend, telemetry } = await openSession()
    const stop = new AbortController()
    const tasks = [quick({ signal: stop.signal }), quick({ signal: stop.signal, retries: 2 })]
    await session.submitTasks(tasks)
    for (const task of tasks) backend.start(task)
    stop.abort('stop all')
    for (const task of tasks) expect(session.cancel(task)).toBe(false)
    if (tasks[0] !== undefined) backend.complete(tasks[0], 1)
    if (tasks[1] !== undefined) backend.fail(tasks[1], new Error('just before'))
    expect(tasks.map(({ state }) => state)).toEqual(['CANCELED', 'CANCELED'])
    expect(tasks.map(({ error }) => error)).toMatchObject([{ reason: 'stop all' }, {}])
    expect(telemetry.summary().late_results).toBe(2)
  })

  it('row 24: an ended task is removed from its signal, the others are canceled', async () => {
    const { session, backend } = await openSession()
    const stop = new AbortController()
    const [done, open] = [quick({ signal: stop.signal }), quick({ signal: stop.signal })]
    await session.submitTasks([done, open])
    backend.complete(done)
    stop.abort()
    expect(backend.cancels.map(({ job }) => job.uid)).toEqual([open.uid])
    expect(backend.cancels[0]?.reason).toBe('This operation was aborted')
    // A signal that outlives its tasks keeps nothing of them.
    const kept = new AbortController()
    const last = quick({ signal: kept.signal })
    await session.submitTasks([last])
    expect(getEventListeners(kept.signal, 'abort')).toHaveLength(1)
    backend.complete(last)
    expect(getEventListeners(kept.signal, 'abort')).toHaveLength(0)
  })
})

const reports = {
  complete: { kind: 'complete', value: 1 },
  fail: { kind: 'fail', error: new Error('no') },
  cancel: cancelReport,
  start: { kind: 'start', workerId: 'w2', nodeId: 'n2' },
} as const
