import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../../src/backends/local/concurrent-backend.ts'
import { TimeoutError } from '../../../../src/foundation/errors.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import { byRun } from '../../../long-run.ts'
import {
  echo,
  holedResult,
  hostilePromise,
  hostileResult,
  revokedLater,
  throwHostile,
  throwInAbort,
} from './fixtures/functions.ts'
import { hostileErrors, hostilePromises, hostileValues } from './fixtures/hostile-values.ts'

/** Sessions of one backend, which is closed after the last test of its group. */
function sessionsOf(isolation: 'thread' | 'process'): () => Promise<Session> {
  let creating: Promise<ConcurrentBackend> | null = null
  afterAll(async () => (await creating)?.close())
  return async () => {
    creating ??= ConcurrentBackend.create({ isolation, workers: 1 })
    const session = new Session([await creating])
    onTestFinished(() => session.close({ keepBackends: true }))
    return session
  }
}

describe.for(['thread', 'process'] as const)('values that throw, isolation %s', (isolation) => {
  const openSession = sessionsOf(isolation)

  it('row 106: an argument that throws when it is looked at fails its own task alone', async () => {
    const session = await openSession()
    const hostile = Object.entries(hostileValues).flatMap(([name, make]) => [
      new ComputeTask({ function: echo, args: [make()], uid: name }),
      new ComputeTask({ function: echo, args: [{ deep: [make()] }], uid: `${name}-deep` }),
    ])
    const good = new ComputeTask({ function: echo, args: ['good'] })
    await session.submitTasks([...hostile, good])
    await session.waitTasks([...hostile, good])
    for (const task of hostile) {
      const { cause } = task.error as Error
      expect(cause, task.uid).toMatchObject({
        name: 'ArgumentNotSerializableError',
        code: 'ArgumentNotSerializableError',
      })
      expect(task.state).toBe('FAILED')
    }
    expect(good.returnValue).toBe('good')
  })

  it('arrays and objects with very many parts go there and back', async () => {
    const session = await openSession()
    const numbers = Array.from({ length: 1_000_000 }, (_, at) => at)
    // More than the arguments that a call can have.
    const keys = byRun(130_000, 200_000)
    const record = Object.fromEntries(numbers.slice(0, keys).map((at) => [`key ${at}`, at]))
    const holes: unknown[] = []
    holes.length = 300_000
    const values = [numbers, record, holes]
    const tasks = values.map((value) => new ComputeTask({ function: echo, args: [value] }))
    await session.submitTasks(tasks)
    const [back, backRecord, backHoles] = await Promise.all(tasks)
    expect((back as number[]).length).toBe(1_000_000)
    expect((back as number[]).at(-1)).toBe(999_999)
    expect(Object.keys(backRecord as object)).toHaveLength(keys)
    expect(backHoles).toHaveLength(300_000)
  })

  it('a value that cannot be sent is named behind a hole of an array', async () => {
    const session = await openSession()
    const holes: unknown[] = []
    holes[2] = () => 1
    const argument = new ComputeTask({ function: echo, args: [holes] })
    const result = new ComputeTask({ function: holedResult })
    await session.submitTasks([argument, result])
    await session.waitTasks([argument, result])
    const causeOf = ({ error }: { readonly error: unknown }): unknown => (error as Error).cause
    expect(causeOf(argument)).toMatchObject({
      code: 'ArgumentNotSerializableError',
      field: 'args[0][2]',
    })
    expect(causeOf(result)).toMatchObject({
      code: 'ResultNotSerializableError',
      field: 'return_value[2]',
    })
  })

  it('row 106: a result that throws when it is looked at costs no worker', async () => {
    const session = await openSession()
    const telemetry = await session.startTelemetry()
    const types: string[] = []
    telemetry.subscribe((event) => void types.push(event.event_type))
    const hostile = Object.keys(hostileValues).flatMap((name) => [
      new ComputeTask({ function: hostileResult, args: [name, false], uid: name }),
      new ComputeTask({ function: hostileResult, args: [name, true], uid: `${name}-deep` }),
    ])
    const good = new ComputeTask({ function: echo, args: [{ good: true }] })
    await session.submitTasks([...hostile, good])
    await session.waitTasks([...hostile, good])
    for (const task of hostile) {
      const { cause } = task.error as Error
      expect(cause, task.uid).toMatchObject({
        name: 'ResultNotSerializableError',
        code: 'ResultNotSerializableError',
      })
    }
    expect(good.returnValue).toEqual({ good: true })
    await telemetry.flush()
    expect(types).not.toContain('tutti.WorkerLost')
  })
  it('row 106: a promise or an error of hostile code costs no worker', async () => {
    const session = await openSession()
    const telemetry = await session.startTelemetry()
    const lost: unknown[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.WorkerLost') lost.push(event.reason)
    })
    const promises = Object.keys(hostilePromises).map(
      (name) => new ComputeTask({ function: hostilePromise, args: [name], uid: name }),
    )
    const later = new ComputeTask({ function: revokedLater })
    const errors = Object.keys(hostileErrors).map(
      (name) => new ComputeTask({ function: throwHostile, args: [name], uid: name }),
    )
    const all = [...promises, later, ...errors]
    await session.submitTasks(all)
    await session.waitTasks(all)
    // As with `await` in the program itself, which does not ask the promise either.
    for (const task of promises) {
      expect([task.uid, task.returnValue]).toEqual([task.uid, await hostileAwaited(task.uid)])
    }
    expect(later.error?.cause).toBeInstanceOf(TypeError)
    for (const task of errors) {
      expect(task.error?.cause, task.uid).toMatchObject({ message: 'several' })
    }
    await telemetry.flush()
    expect(lost).toEqual([])
  })

  it('row 17: a listener that throws when the time is over does not change the end', async () => {
    const session = await openSession()
    const task = new ComputeTask({ function: throwInAbort, timeoutSeconds: 0.3, retries: 1 })
    const next = new ComputeTask({ function: echo, args: ['next'] })
    await session.submitTasks([task, next])
    await session.waitTasks([task, next])
    expect(task.error?.cause).toBeInstanceOf(TimeoutError)
    expect(next.returnValue).toBe('next')
  })

  it('the field of an argument that cannot be sent names the argument', async () => {
    const session = await openSession()
    const { port1 } = new MessageChannel()
    onTestFinished(() => port1.close())
    const bad = isolation === 'process' ? new SharedArrayBuffer(8) : port1
    const tasks = [bad, { deep: [1, bad] }].map(
      (value) => new ComputeTask({ function: echo, args: [value] }),
    )
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    const fields = tasks.map(
      ({ error }) => (error?.cause as { field?: unknown } | undefined)?.field,
    )
    expect(fields).toEqual(['args[0]', 'args[0].deep[1]'])
  })
})

const hostileAwaited = async (name: string): Promise<unknown> => await hostilePromises[name]?.()
