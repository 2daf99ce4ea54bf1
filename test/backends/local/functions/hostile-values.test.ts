import { describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import { echo, hostileResult } from './fixtures/functions.ts'
import { hostileValues } from './fixtures/hostile-values.ts'

async function openSession(isolation: 'thread' | 'process'): Promise<Session> {
  const backend = await ConcurrentBackend.create({ isolation, workers: 1 })
  const session = new Session([backend])
  onTestFinished(() => session.close())
  return session
}

describe.for(['thread', 'process'] as const)('values that throw, isolation %s', (isolation) => {
  it('row 106: an argument that throws when it is looked at fails its own task alone', async () => {
    const session = await openSession(isolation)
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

  it('row 106: a result that throws when it is looked at costs no worker', async () => {
    const session = await openSession(isolation)
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
})
