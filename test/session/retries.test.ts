import { describe, expect, it } from 'vitest'
import { PoisonTaskError, WorkerLostError } from '../../src/foundation/errors.ts'
import { TaskFailedError } from '../../src/foundation/task-errors.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { attribute, openSession, quick, rejection, typesOf, untilPrimed } from './open-session.ts'

const tillQueued = ['TaskCreated', 'TaskSubmitted', 'TaskQueued']
const lost = (text: string) => new WorkerLostError(text)

describe('retries', () => {
  it('a task continues from attempts that the backend knows of an earlier session', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 2 })
    await session.submitTasks([task])
    const worker = { workerId: 'w1', nodeId: 'n1' }
    // The second was canceled with the earlier start: it was no failure.
    const continued = { number: 3, uncounted: 1 }
    const third = backend.jobOf(task)
    backend.report(third, { kind: 'start', ...worker, continued })
    backend.report(third, { kind: 'fail', error: new RangeError('no. 3'), continued })
    const fourth = backend.jobOf(task)
    expect([third.attempt, fourth.attempt]).toEqual([1, 4])
    backend.report(fourth, { kind: 'start', ...worker })
    backend.report(fourth, { kind: 'fail', error: new RangeError('no. 4') })
    expect(await rejection(task)).toMatchObject({ cause: { message: 'no. 4' } })
    const events = await eventsOf(task)
    const attempts = events.map(
      (event) => attribute(event, 'attempt') ?? Reflect.get(event, 'attempt'),
    )
    expect(attempts.filter((number) => number !== undefined)).toEqual([3, 3, 3, 4, 4])
  })

  it('retries: an event for every failed attempt, TaskStarted once', async () => {
    const { session, backend, clock, telemetry, eventsOf } = await openSession()
    const task = quick({ retries: 2 })
    await session.submitTasks([task])
    const report = (attempt: number, kind: 'start' | 'fail') => {
      const job = backend.jobOf(task)
      expect(job.attempt).toBe(attempt)
      const worker = { workerId: `w${attempt}`, nodeId: `n${attempt}` }
      if (kind === 'start') backend.report(job, { kind, ...worker })
      else backend.report(job, { kind, error: new RangeError(`no. ${attempt}`) })
    }
    report(1, 'start')
    await clock.advance(1000)
    report(1, 'fail')
    expect(task.state).toBe('RUNNING')
    await clock.advance(4000)
    report(2, 'start')
    await clock.advance(2000)
    report(2, 'fail')
    report(3, 'start')
    await clock.advance(500)
    backend.complete(task, 'third time lucky')
    expect(await task).toBe('third time lucky')
    expect(backend.jobs.map(({ uid, attempt }) => [uid, attempt])).toEqual(
      [1, 2, 3].map((attempt) => [task.uid, attempt]),
    )

    const events = await eventsOf(task)
    const [started, first, again, second, last, end] = events.slice(3)
    expect(typesOf(events)).toEqual([
      ...tillQueued,
      'TaskStarted',
      'tutti.TaskAttempt',
      'tutti.AttemptStarted',
      'tutti.TaskAttempt',
      'tutti.AttemptStarted',
      'TaskCompleted',
    ])
    expect(attribute(started, 'attempt')).toBe(1)
    const told = { error_type: 'RangeError', backend: 'local' }
    expect(first).toMatchObject({
      ...told,
      attempt: 1,
      error_message: 'no. 1',
      node_id: 'n1',
      worker_id: 'w1',
      start_time: 1000,
      duration_seconds: 1,
      retry_at: 1001,
      event_time: 1001,
    })
    expect(again).toMatchObject({ attempt: 2, worker_id: 'w2', node_id: 'n2', event_time: 1005 })
    expect(second).toMatchObject({
      ...told,
      attempt: 2,
      error_message: 'no. 2',
      node_id: 'n2',
      worker_id: 'w2',
      start_time: 1005,
      duration_seconds: 2,
      retry_at: 1007,
    })
    expect(last).toMatchObject({ attempt: 3, worker_id: 'w3', node_id: 'n3', event_time: 1007 })
    // From TaskStarted: three attempts of 1, 2 and 0.5 s, and a wait of 4 s.
    expect(end).toMatchObject({ duration_seconds: 7.5, node_id: 'n3' })
    expect(telemetry.readMetrics()).toMatchObject({
      task_duration_seconds_count: 1,
      task_duration_seconds_sum: 7.5,
    })
    expect(end?.attributes).toMatchObject({ attempt: 3, worker_id: 'w3' })
    expect(end?.attributes).not.toHaveProperty('incomplete_lifecycle')
  })

  it('retries: the last error is the error of the task', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 1 })
    await session.submitTasks([task])
    backend.start(task)
    backend.fail(task, new Error('first'))
    backend.start(task)
    backend.fail(task, new TypeError('second'))
    expect((await rejection(task)).cause).toBeInstanceOf(TypeError)
    const events = await eventsOf(task)
    expect(typesOf(events).slice(3)).toEqual([
      'TaskStarted',
      'tutti.TaskAttempt',
      'tutti.AttemptStarted',
      'TaskFailed',
    ])
    expect(backend.jobs).toHaveLength(2)
  })

  it('retries: none after a failure that the backend calls final', async () => {
    const { session, backend } = await openSession()
    const task = quick({ retries: 3 })
    await session.submitTasks([task])
    const error = new Error('nobody can run it')
    backend.report(backend.jobOf(task), { kind: 'fail', error, isFinal: true })
    expect((await rejection(task)).cause).toBe(error)
    expect(backend.jobs).toHaveLength(1)
  })

  it('retries: TaskStarted belongs to the first attempt that runs', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 1 })
    await session.submitTasks([task])
    backend.fail(task, lost('died before it began'))
    expect(task.state).toBe('QUEUED')
    backend.start(task)
    backend.complete(task)
    const events = await eventsOf(task)
    expect(typesOf(events).slice(2)).toEqual([
      'TaskQueued',
      'tutti.TaskAttempt',
      'TaskStarted',
      'tutti.AttemptStarted',
      'TaskCompleted',
    ])
    const never = { attempt: 1, worker_id: null, start_time: null, duration_seconds: 0 }
    expect(events[3]).toMatchObject(never)
    expect(attribute(events[4], 'attempt')).toBe(2)
    expect(events.at(-1)?.attributes).not.toHaveProperty('incomplete_lifecycle')
  })

  it('retries: none while the session closes', async () => {
    /** Fails what it runs instead of canceling it. */
    class Falling extends FakeBackend {
      override connect(...args: Parameters<FakeBackend['connect']>) {
        const release = async (): Promise<void> => {
          for (const job of this.jobs) this.fail(job, lost('the node went down'))
        }
        return { ...super.connect(...args), release }
      }
    }
    const backend = new Falling()
    const session = new Session([backend])
    const task = quick({ retries: 5 })
    await session.submitTasks([task])
    backend.start(task)
    await session.close()
    expect(backend.jobs).toHaveLength(1)
    expect(task.state).toBe('CANCELED')
    expect(task.error).toMatchObject({ reason: 'session closed' })
  })
})

describe('retries with a delay', () => {
  it('retries: a task waits for its next attempt, RUNNING and without a job', async () => {
    const { session, backend, clock, telemetry, eventsOf } = await openSession()
    const task = quick({ retries: { times: 2, delaySeconds: 10 } })
    await session.submitTasks([task])
    expect([task.retries, task.retryAt]).toEqual([2, null])
    backend.start(task)
    await clock.advance(1000)
    backend.fail(task, new RangeError('first'))
    expect([task.state, task.retryAt]).toEqual(['RUNNING', 1011])
    expect(telemetry.readMetrics()['tasks_running']).toBe(1)
    await clock.advance(9999)
    expect(backend.jobs).toHaveLength(1)
    await clock.advance(1)
    expect(backend.jobs.map(({ attempt }) => attempt)).toEqual([1, 2])
    expect(task.retryAt).toBe(1011)
    backend.start(task)
    expect(task.retryAt).toBe(null)
    backend.fail(task, new RangeError('second'))
    expect(task.retryAt).toBe(1031)
    await clock.advance(20_000)
    backend.start(task)
    backend.complete(task, 'fine')
    expect([await task, task.retryAt]).toEqual(['fine', null])
    await untilPrimed(clock)
    const events = await eventsOf(task)
    expect(events.filter((event) => event.event_type === 'tutti.TaskAttempt')).toMatchObject([
      { attempt: 1, retry_at: 1011, duration_seconds: 1, start_time: 1000, worker_id: 'f1' },
      { attempt: 2, retry_at: 1031, duration_seconds: 0, start_time: 1011, worker_id: 'f1' },
    ])
    expect(events.at(-1)).toMatchObject({ duration_seconds: 31 })
  })

  it('retries: a task that is canceled while it waits ends at once', async () => {
    const { session, backend, clock, eventsOf } = await openSession()
    const stop = new AbortController()
    const retries = { times: 2, delaySeconds: 10 }
    const [task, aborted] = [quick({ retries }), quick({ retries, signal: stop.signal })]
    await session.submitTasks([task, aborted])
    for (const one of [task, aborted]) {
      backend.start(one)
      backend.fail(one, new Error('once'))
    }
    await clock.advance(4000)
    expect(session.cancel(task, 'enough')).toBe(true)
    stop.abort('stop')
    expect([task.state, aborted.state, task.retryAt]).toEqual(['CANCELED', 'CANCELED', null])
    const end = (await eventsOf(task)).at(-1)
    expect(end).toMatchObject({ event_type: 'TaskCanceled', duration_seconds: 4 })
    expect(end?.attributes).not.toHaveProperty('incomplete_lifecycle')
    await clock.advance(60_000)
    expect([backend.jobs.length, backend.cancels.length]).toEqual([2, 0])
  })

  it('retries: close() ends a task that waits, and nothing begins again', async () => {
    const { session, backend, clock, all } = await openSession()
    const task = quick({ retries: { times: 2, delaySeconds: 10 } })
    await session.submitTasks([task])
    backend.start(task)
    backend.fail(task, new Error('once'))
    await clock.advance(1000)
    await session.close()
    expect(task.error).toMatchObject({ reason: 'session closed' })
    await clock.advance(60_000)
    expect(backend.jobs).toHaveLength(1)
    const end = all.find((event) => event.event_type === 'TaskCanceled')
    expect(end).toMatchObject({ task_id: task.uid, duration_seconds: 1 })
  })

  it('retries: `if` decides by the original error', async () => {
    const { session, backend } = await openSession()
    const seen: unknown[] = []
    const busy = new RangeError('busy')
    const task = quick({
      retries: {
        times: 5,
        if: (error) => {
          seen.push(error)
          return error === busy
        },
      },
    })
    await session.submitTasks([task])
    backend.fail(task, busy)
    const final = new TypeError('wrong input')
    backend.fail(task, final)
    expect((await rejection(task)).cause).toBe(final)
    expect(seen).toEqual([busy, final])
  })

  it('retries: an `if` that throws ends the task with its own error, and is reported', async () => {
    const warnings: string[] = []
    const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
    const backend = new FakeBackend()
    await using session = new Session([backend], { log })
    const broken = (): boolean => {
      throw new Error('cannot decide')
    }
    const task = quick({ retries: { times: 5, if: broken } })
    await session.submitTasks([task])
    const original = new RangeError('original')
    backend.fail(task, original)
    expect((await rejection(task)).cause).toBe(original)
    expect(warnings).toEqual([
      `RetryConditionFailed: \`retries.if\` of task ${task.uid} failed, ` +
        'so the task is not retried: cannot decide',
    ])
  })

  it('retries: a prompt is tried again as well', async () => {
    const { session, backend, clock } = await openSession()
    const ask = new AITask({ prompt: 'Why?', retries: { times: 1, delaySeconds: 1 } })
    await session.submitTasks([ask])
    backend.start(ask)
    backend.fail(ask, new Error('busy'))
    await clock.advance(1000)
    backend.start(ask)
    backend.complete(ask, 'Because.')
    expect(await ask).toBe('Because.')
  })
})

describe('row 21: a task that kills its workers', () => {
  it('row 21: a task that kills three workers fails as poison, whatever its retries', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 5 })
    await session.submitTasks([task])
    for (const attempt of [1, 2, 3]) {
      backend.start(task)
      backend.fail(task, lost(`exit code ${attempt}`))
    }
    const error = await rejection(task)
    expect(error).toBeInstanceOf(TaskFailedError)
    expect(error.cause).toBeInstanceOf(PoisonTaskError)
    expect(error.cause).toMatchObject({
      message: 'ran on 3 workers, which all died; the last one: exit code 3',
      hint: expect.any(String) as string,
    })
    expect(backend.jobs).toHaveLength(3)
    const events = await eventsOf(task)
    expect(typesOf(events).slice(3)).toEqual([
      'TaskStarted',
      'tutti.TaskAttempt',
      'tutti.AttemptStarted',
      'tutti.TaskAttempt',
      'tutti.AttemptStarted',
      'TaskFailed',
    ])
    expect(events.at(-1)?.error_type).toBe('PoisonTaskError')
    expect(attribute(events.at(-1), 'attempt')).toBe(3)
  })

  it('row 21: lost workers count as poison, other failures do not', async () => {
    const { session, backend } = await openSession()
    const task = quick({ retries: 4 })
    await session.submitTasks([task])
    backend.fail(task, lost('one'))
    backend.fail(task, new Error('other'))
    backend.fail(task, lost('two'))
    backend.fail(task, new Error('another'))
    expect(task.state).toBe('QUEUED')
    backend.complete(task, 'fine')
    expect(await task).toBe('fine')
  })

  it('row 21: a WorkerLostError that the task itself throws is no lost worker', async () => {
    const { session, backend } = await openSession()
    const task = quick({ retries: 3 })
    await session.submitTasks([task])
    for (const attempt of [1, 2, 3, 4]) {
      backend.start(task)
      const error = lost(`thrown ${attempt}`)
      backend.report(backend.jobOf(task), { kind: 'fail', error, isThrown: true })
    }
    expect((await rejection(task)).cause).toMatchObject({ message: 'thrown 4' })
    expect(backend.jobs).toHaveLength(4)
  })

  it('row 21: one lost worker without retries is a WorkerLostError, not poison', async () => {
    const { session, backend } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    const error = lost('SIGKILL')
    backend.fail(task, error)
    expect((await rejection(task)).cause).toBe(error)
  })
})
