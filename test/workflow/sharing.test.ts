import { describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { square } from '../backends/local/fixtures/backend-tasks.ts'

describe('a session and a workflow engine in one program', () => {
  it('sharing: session and engine on one backend see their own tasks only', async () => {
    const backend = await ConcurrentBackend.create({ workers: 2 })
    const session = new Session([backend])
    const flow = await WorkflowEngine.create({ backend })
    const uids = new Map<string, Set<string | null>>()
    for (const owner of [session, flow]) {
      const telemetry = await owner.startTelemetry()
      const own = new Set<string | null>()
      uids.set(owner.id, own)
      telemetry.subscribe(({ task_id: uid }) => void (uid !== null && own.add(uid)))
    }
    const squareOf = flow.functionTask(square)
    const tasks = Array.from(
      { length: 20 },
      (_, n) => new ComputeTask({ function: square, args: [n] }),
    )
    await session.submitTasks(tasks)
    const handles = tasks.map((_, n) => squareOf(squareOf(n)))
    // A closure of one may wait for the other's.
    const both = new ComputeTask({ function: async () => (await handles[3]) ?? 0 })
    await session.submitTasks([both])
    expect(await Promise.all([...tasks, ...handles])).toEqual([
      ...tasks.map((_, n) => n * n),
      ...tasks.map((_, n) => n ** 4),
    ])
    expect(await both).toBe(81)
    await flow.shutdown({ keepBackends: true })
    const last = new ComputeTask({ function: square, args: [5] })
    await session.submitTasks([last])
    expect(await last).toBe(25)
    await session.close()
    expect(uids.get(session.id)?.size).toBe(22)
    expect(uids.get(flow.id)?.size).toBe(40)
  })

  it('sharing: the loop stays free while session and engine are busy', async () => {
    const backend = await ConcurrentBackend.create({ workers: 1 })
    await using session = new Session([backend])
    const flow = await WorkflowEngine.create({ backend })
    const tasks = Array.from(
      { length: 3000 },
      () => new ComputeTask({ function: square, args: [1] }),
    )
    const squareOf = flow.functionTask(square)
    let turns = 0
    const count = (): void => void (turns++, setImmediate(count).unref())
    setImmediate(count)
    await session.submitTasks(tasks)
    await Promise.all(Array.from({ length: 3000 }, () => squareOf(1)))
    await session.waitTasks(tasks)
    expect(turns).toBeGreaterThan(5)
    await flow.shutdown({ keepBackends: true })
  })
})
