import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { hasEnded } from '../../src/tasks/lifecycle.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { turns } from './open-session.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'

/** Numbers from 0 to below 1 that are the same in every run. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return state / 2 ** 31
  }
}

describe('row 23: cancel() at any moment', () => {
  const kinds: Readonly<Record<string, () => ComputeTask<unknown>>> = {
    'short programs': () => new ComputeTask({ executable: '/bin/true' }),
    'functions on threads': () => new ComputeTask({ function: square, args: [3] }),
    closures: () => new ComputeTask({ function: async () => turns(2) }),
  }
  it.each(Object.entries(kinds))('row 23: no canceled task of %s ends DONE', async (_, create) => {
    const backend = await ConcurrentBackend.create({ name: 'local', workers: 2, maxProcesses: 4 })
    await using session = new Session([backend])
    const telemetry = await session.startTelemetry()
    const random = seeded(7)
    const tasks = Array.from({ length: 300 }, create)
    const byUid = new Map(tasks.map((task) => [task.uid, task]))
    const canceled = new Set<string>()
    const cancelLater = async (task: ComputeTask<unknown>): Promise<void> => {
      // From none to two thousand turns of the loop: before, at and after the end of most tasks.
      await turns(Math.floor(2 ** (random() * 11)) - 1)
      const wasOver = hasEnded(task.state)
      expect(session.cancel(task)).toBe(!wasOver)
      expect(session.cancel(task)).toBe(false)
      if (!wasOver) canceled.add(task.uid)
    }
    const types = new Map<string, string[]>()
    const cancels: Promise<void>[] = []
    telemetry.subscribe(({ event_type: type, task_id: uid }) => {
      const task = byUid.get(uid ?? '')
      if (uid === null || task === undefined) return
      types.set(uid, [...(types.get(uid) ?? []), type])
      if (type === 'TaskStarted') cancels.push(cancelLater(task))
    })
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await telemetry.flush()
    await Promise.all(cancels)
    for (const { uid, state } of tasks) {
      expect(state).toBe(canceled.has(uid) ? 'CANCELED' : 'DONE')
      const end = canceled.has(uid) ? 'TaskCanceled' : 'TaskCompleted'
      const order = ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', end]
      expect(types.get(uid)).toEqual(order)
    }
    const { canceled: count } = telemetry.summary().tasks
    expect(count).toBe(canceled.size)
  })

  it('row 23: the result of an abandoned closure is dropped and counted', async () => {
    await using session = new Session([await ConcurrentBackend.create({ name: 'local' })])
    const telemetry = await session.startTelemetry()
    const late = Promise.withResolvers<string>()
    const task = new ComputeTask({ function: () => late.promise })
    await session.submitTasks([task])
    await turns(1)
    expect([task.state, session.cancel(task)]).toEqual(['RUNNING', true])
    expect([task.state, telemetry.summary().late_results]).toEqual(['CANCELED', 0])
    late.resolve('too late')
    await turns(1)
    expect([task.state, task.returnValue]).toEqual(['CANCELED', undefined])
    expect(telemetry.summary().late_results).toBe(1)
  })
})
