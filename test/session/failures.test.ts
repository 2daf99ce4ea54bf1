import { describe, expect, it } from 'vitest'
import { toEventNotice } from '../../src/backends/backend.ts'
import { BackendThrottled, WorkerLost } from '../../src/events/library-events.ts'
import { TimeoutError, WorkerLostError } from '../../src/foundation/errors.ts'
import { registerSecret } from '../../src/foundation/secrets.ts'
import {
  ExecutableFailedError,
  ExecutableNotFoundError,
  TaskFailedError,
} from '../../src/foundation/task-errors.ts'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { closeOnSignals } from '../../src/session/close-on-signals.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { attribute, openSession, quick, rejection, typesOf } from './open-session.ts'

const hostile = new Proxy(new Error('unseen'), {
  get() {
    throw new Error('no touching')
  },
  getPrototypeOf() {
    throw new Error('no touching')
  },
})

class Divergence extends Error {
  override get name(): string {
    throw new Error('no name for you')
  }
}

const thrownValues: readonly [string, unknown, string, string][] = [
  ['null', null, 'unknown', 'null'],
  ['undefined', undefined, 'unknown', 'undefined'],
  ['a string', 'out of luck', 'unknown', 'out of luck'],
  ['a number', 7, 'unknown', '7'],
  ['a symbol', Symbol('why'), 'unknown', 'Symbol(why)'],
  ['an error', new RangeError('too far'), 'RangeError', 'too far'],
  ['a frozen error', Object.freeze(new TypeError('cold')), 'TypeError', 'cold'],
  ['an error whose name throws', new Divergence('diverged'), 'Divergence', 'diverged'],
  ['a value that throws at every touch', hostile, 'unknown', 'an unprintable value was thrown'],
  ['a time-out', new TimeoutError('ran longer than 1 s'), 'TimeoutError', 'ran longer than 1 s'],
  ['a lost worker', new WorkerLostError('exit 137'), 'WorkerLostError', 'exit 137'],
]

describe('row 14: whatever a task throws', () => {
  it.each(thrownValues)('row 14: %s fails the task, with the original as cause', async (...row) => {
    const [, thrown, errorType, message] = row
    const { session, backend, clock, eventsOf } = await openSession()
    const task = quick()
    await session.submitTasks([task])
    backend.start(task)
    await clock.advance(250)
    backend.fail(task, thrown)

    const error = await rejection(task)
    expect(error).toBeInstanceOf(TaskFailedError)
    expect(Object.is(error.cause, thrown)).toBe(true)
    expect(error).toBe(task.error)
    expect(error.message).toBe(`task ${task.uid} failed: ${errorType}: ${message}`)
    expect(task.state).toBe('FAILED')

    const events = await eventsOf(task)
    expect(typesOf(events).slice(3)).toEqual(['TaskStarted', 'TaskFailed'])
    const end = events.at(-1)
    expect([end?.error_type, end?.duration_seconds]).toEqual([errorType, 0.25])
    expect(end?.attributes).toMatchObject({ error_type: errorType, error_message: message })
  })

  it('row 14: an error whose stack getter throws is recorded without a stack', async () => {
    const { session, backend, eventsOf } = await openSession()
    const [bad, good] = [quick(), quick()]
    await session.submitTasks([bad, good])
    const error = new Error('bent')
    Object.defineProperty(error, 'stack', {
      get() {
        throw new Error('no stack')
      },
    })
    backend.fail(bad, error)
    backend.fail(good, new Error('straight'))
    await Promise.all([rejection(bad), rejection(good)])
    expect((await eventsOf(bad)).at(-1)?.attributes).not.toHaveProperty('error_stack')
    expect(attribute((await eventsOf(good)).at(-1), 'error_stack')).toMatch(/^Error: straight\n/)
  })
})

describe('a failed program', () => {
  it('failed program: error and event have the exit code and the tail of stderr', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = new ComputeTask({ executable: 'simulate' })
    await session.submitTasks([task])
    backend.start(task)
    const details = { uid: task.uid, exitCode: 3, signal: null, stderr: 'bad seed' }
    const failed = new ExecutableFailedError('simulate ended with exit code 3', details)
    const facts = { exitCode: 3, stdoutTail: 'é'.repeat(1500), stderrTail: 'bad seed' }
    backend.report(backend.jobOf(task), { kind: 'fail', error: failed, facts })
    expect(await rejection(task)).toBe(failed)
    expect([task.exitCode, task.stderr, task.stdout]).toEqual([3, 'bad seed', ''])
    const end = (await eventsOf(task)).at(-1)
    expect(end?.error_type).toBe('ExecutableFailedError')
    expect(end?.attributes).toMatchObject({ exit_code: 3, stderr_tail: 'bad seed' })
    // 2 KB of bytes, not of characters.
    expect(attribute(end, 'stdout_tail')).toBe('é'.repeat(1024))
  })

  it('failed program: error and event name the signal', async () => {
    const { session, backend, eventsOf } = await openSession()
    const task = new ComputeTask({ executable: 'simulate' })
    await session.submitTasks([task])
    const details = { uid: task.uid, exitCode: null, signal: 'SIGSEGV', stderr: '' }
    const error = new ExecutableFailedError('ended by SIGSEGV', details)
    backend.report(backend.jobOf(task), { kind: 'fail', error, facts: { signal: 'SIGSEGV' } })
    expect(await rejection(task)).toMatchObject({ signal: 'SIGSEGV', exitCode: null })
    expect(task.exitCode).toBeUndefined()
    expect(attribute((await eventsOf(task)).at(-1), 'signal')).toBe('SIGSEGV')
  })

  it('failed program: the task has the reported output, and which part was cut', async () => {
    const { session, backend } = await openSession()
    const programs = ['cut', 'whole'].map((executable) => new ComputeTask({ executable }))
    await session.submitTasks(programs)
    const cut = { stdoutTruncated: true, stderrTruncated: true } as const
    for (const task of programs) {
      const kept = { exitCode: 3, stdout: 'out', stderr: 'err' }
      const facts = task.executable === 'cut' ? { ...kept, ...cut } : kept
      backend.report(backend.jobOf(task), { kind: 'fail', error: new Error('3'), facts })
      await rejection(task)
      expect([task.exitCode, task.stdout, task.stderr]).toEqual([3, 'out', 'err'])
    }
    expect(programs.map((task) => task.stdoutTruncated)).toEqual([true, false])
    expect(programs.map((task) => task.stderrTruncated)).toEqual([true, false])
  })

  it('canceled program: if it succeeded meanwhile, the task has its output', async () => {
    const { session, backend } = await openSession()
    const task = new ComputeTask({ executable: 'simulate' })
    await session.submitTasks([task])
    backend.start(task)
    session.cancel(task, 'not needed')
    backend.complete(task, { exitCode: 0, stdout: 'out', stderr: 'err' })
    expect(await rejection(task)).toMatchObject({ reason: 'not needed' })
    expect([task.state, task.stdout, task.stderr]).toEqual(['CANCELED', 'out', 'err'])
  })
})

it('one value in the place of a list: the error says what it is and what to write', async () => {
  const { session, backend, telemetry } = await openSession()
  const message = (field: string, what: string): string =>
    `Expected \`${field}\` to be an array of ${field}, got an instance of ${what}`
  const task = quick()
  for (const call of ['submitTasks', 'waitTasks'] as const) {
    expect(await rejection(session[call](task as never))).toMatchObject({
      message: message('tasks', 'ComputeTask'),
      hint: 'Write `[task]`, even for a single one.',
    })
  }
  expect(() => new Session(backend as never)).toThrow(
    expect.objectContaining({
      message: message('backends', 'FakeBackend'),
      hint: 'Write `new Session([backend])`, even for a single one.',
    }),
  )
  expect(() => closeOnSignals(telemetry as never)).toThrow(
    expect.objectContaining({
      message: expect.stringMatching(
        /workflow engine, got an instance of SessionTelemetry$/,
      ) as string,
      hint: expect.stringContaining('closeOnSignals(session)') as string,
    }),
  )
})

it('the hint of the original error is that of the rejection', async () => {
  await using session = new Session([await ConcurrentBackend.create()])
  const task = new ComputeTask({ executable: 'echo hello' })
  await session.submitTasks([task])
  const error = (await rejection(task)) as TaskFailedError
  expect(error.cause).toBeInstanceOf(ExecutableNotFoundError)
  expect(error.hint).toBe((error.cause as ExecutableNotFoundError).hint)
  expect(error.hint).toContain('arguments')
})

describe('a failure of another task', () => {
  it('failure of another task: it is the cause, not the error', async () => {
    const { session, backend, eventsOf } = await openSession()
    const [inner, outer, third] = [quick(), quick(), quick()]
    await session.submitTasks([inner, outer, third])
    backend.fail(inner, new RangeError('deep'))
    const innerError = await rejection(inner)
    backend.fail(outer, innerError)
    const outerError = await rejection(outer)
    expect(outerError).toMatchObject({ uid: outer.uid, cause: innerError })

    session.cancel(third, 'not needed')
    backend.report(backend.jobOf(third), { kind: 'cancel', reason: 'x' })
    const fourth = quick()
    await session.submitTasks([fourth])
    backend.fail(fourth, await rejection(third))
    const end = (await eventsOf(fourth)).at(-1)
    expect(end?.error_type).toBe('TaskCanceledError')
    expect(end?.attributes).not.toHaveProperty('reason')
  })
})

describe('secrets', () => {
  const token = 'hf_abcDEF+123(secret)'

  it('secrets: masked in messages, stacks, tails and reasons, not kept in results', async () => {
    registerSecret(token)
    const { session, backend, telemetry, eventsOf, all } = await openSession({
      telemetry: { keepResults: true },
    })
    const [failed, canceled, done] = [quick(), quick(), quick()]
    await session.submitTasks([failed, canceled, done])
    const facts = { stdoutTail: `x ${token}`, stderrTail: `${token}${'y'.repeat(2040)}` }
    const error = new Error(`401 for ${token}`)
    backend.report(backend.jobOf(failed), { kind: 'fail', error, facts })
    session.cancel(canceled, `revoked ${token}`)
    backend.report(backend.jobOf(canceled), { kind: 'cancel', reason: 'ok' })
    backend.complete(done, { token })
    const lost = { worker_id: 'w', tasks: [`task-${token}`], reason: `died with ${token}` }
    backend.notice(toEventNotice(WorkerLost, lost, { nodeId: 'n' }))
    backend.notice(toEventNotice(BackendThrottled, { reason: `refused ${token}`, limit: 3 }))
    await telemetry.flush()

    const end = (await eventsOf(failed)).at(-1)
    expect(end?.attributes).toMatchObject({
      error_message: '401 for [masked]',
      stdout_tail: 'x [masked]',
      // The cut must not leave the second half of a secret.
      stderr_tail: `[masked]${'y'.repeat(2040)}`,
    })
    expect(attribute(end, 'error_stack')).toContain('Error: 401 for [masked]\n')
    expect(attribute((await eventsOf(canceled)).at(-1), 'reason')).toBe('revoked [masked]')
    // A masked result would be mistaken for what the task returned.
    expect(attribute((await eventsOf(done)).at(-1), 'result_omitted')).toBe(true)
    expect(JSON.stringify(all)).not.toContain('123(secret)')
    expect(typesOf(all)).toContain('tutti.WorkerLost')
    expect(typesOf(all)).toContain('tutti.BackendThrottled')
    // The caller still gets the truth.
    expect((await rejection(failed)).cause).toBe(error)
  })

  it('secrets: masked in a failed attempt', async () => {
    registerSecret(token)
    const { session, backend, eventsOf } = await openSession()
    const task = quick({ retries: 1 })
    await session.submitTasks([task])
    backend.fail(task, new Error(`401 for ${token}`))
    expect((await eventsOf(task)).at(-1)?.error_message).toBe('401 for [masked]')
  })
})
