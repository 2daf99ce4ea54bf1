import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { diverge } from '../backends/local/fixtures/backend-tasks.ts'
import { rejection } from './open-session.ts'

const log = {
  warn(): void {
    throw new Error('the log is broken')
  },
}
const retries = {
  times: 1,
  if: (): boolean => {
    throw new Error('the condition is broken')
  },
}

describe('row 122: a log of the application that throws', () => {
  it.each([
    ['function', () => new ComputeTask({ function: diverge, args: [1], retries })],
    ['program', () => new ComputeTask({ executable: 'false', retries })],
  ])('row 122: a %s whose retry condition throws ends all the same', async (_, create) => {
    const backend = await ConcurrentBackend.create({ workers: 1, log })
    await using session = new Session([backend], { log })
    const task = create()
    await session.submitTasks([task])
    expect(await rejection(task)).toMatchObject({ name: expect.stringContaining('FailedError') })
    expect(task.state).toBe('FAILED')
  })

  it('row 122: a log without `warn` is refused by name', async () => {
    expect(() => new Session([], { log: {} as never })).toThrow(ValueError)
    const creating = ConcurrentBackend.create({ log: {} as never })
    expect(await rejection(creating)).toMatchObject({ name: 'ValueError', field: 'log' })
  })
})

it('row 122: a value whose prototype cannot be read is the value of its task', async () => {
  await using session = new Session([await ConcurrentBackend.create({ workers: 1 })])
  const hostile = new Proxy(
    {},
    {
      get: () => undefined,
      getPrototypeOf: () => {
        throw new Error('no prototype')
      },
    },
  )
  const task = new ComputeTask({ function: () => hostile })
  await session.submitTasks([task])
  expect((await task) === hostile).toBe(true)
  expect([task.state, task.error, task.returnValue === hostile]).toEqual(['DONE', null, true])
})
