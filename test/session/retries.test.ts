import { describe, expect, it } from 'vitest'
import { PoisonTaskError, WorkerLostError } from '../../src/foundation/errors.ts'
import { TaskFailedError } from '../../src/foundation/task-errors.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { attribute, openSession, quick, rejection, typesOf } from './open-session.ts'

const tillQueued = ['TaskCreated', 'TaskSubmitted', 'TaskQueued']
const lost = (text: string) => new WorkerLostError(text)

describe('retries', () => {
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
    const [started, first, second, end] = events.slice(3)
    expect(typesOf(events)).toEqual([
      ...tillQueued,
      'TaskStarted',
      'tutti.TaskAttempt',
      'tutti.TaskAttempt',
      'TaskCompleted',
    ])
    expect(attribute(started, 'attempt')).toBe(1)
    const told = { error_type: 'RangeError', backend: 'local' }
    expect(first).toMatchObject({ ...told, attempt: 1, error_message: 'no. 1', node_id: 'n1' })
    expect(first).toMatchObject({ worker_id: 'w1', start_time: 1000, duration_seconds: 1 })
    expect(second).toMatchObject({ ...told, attempt: 2, error_message: 'no. 2', node_id: 'n2' })
    expect(second).toMatchObject({ worker_id: 'w2', start_time: 1005, duration_seconds: 2 })
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
    expect(typesOf(events).slice(3)).toEqual(['TaskStarted', 'tutti.TaskAttempt', 'TaskFailed'])
    expect(backend.jobs).toHaveLength(2)
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
      'TaskCompleted',
    ])
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
    expect(task.state).toBe('FAILED')
    expect(task.error?.cause).toBeInstanceOf(WorkerLostError)
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
      message: 'ran on 3 workers, all died; last: exit code 3',
      hint: expect.any(String) as string,
    })
    expect(backend.jobs).toHaveLength(3)
    const events = await eventsOf(task)
    expect(typesOf(events).slice(3)).toEqual([
      'TaskStarted',
      'tutti.TaskAttempt',
      'tutti.TaskAttempt',
      'TaskFailed',
    ])
    expect(events.at(-1)?.error_type).toBe('PoisonTaskError')
    expect(attribute(events.at(-1), 'attempt')).toBe(3)
  })

  it('row 21: only lost workers count as poison, not other failures', async () => {
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

  it('row 21: one lost worker without retries is a WorkerLostError, not poison', async () => {
    const { session, backend } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    const error = lost('SIGKILL')
    backend.fail(task, error)
    expect((await rejection(task)).cause).toBe(error)
  })
})
