import { describe, expect, it } from 'vitest'
import { NoopBackend } from '../../src/backends/noop-backend.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { backendContract } from '../../src/testing/backend-contract.ts'

const endsAtOnce = 'it ends every task at once, without running it'

describe('the contract of a backend, kept by NoopBackend', () => {
  backendContract(it, () => new NoopBackend(), {
    skip: {
      'runs a task and reports its end once': endsAtOnce,
      'reports a failure with the original error': endsAtOnce,
      'runs code inside its task': endsAtOnce,
      'ends a running task that is canceled': endsAtOnce,
      'never begins a task that is canceled while it waits': endsAtOnce,
      'fails a task that runs longer than its limit': endsAtOnce,
      'leaves other clients alone when one is released': endsAtOnce,
      'cancels everything when it is closed, and says so': endsAtOnce,
    },
  })
})

describe('NoopBackend', () => {
  it('NoopBackend ends every task immediately with an empty value, without RUNNING', async () => {
    await using session = new Session([new NoopBackend({ name: 'dry' })])
    const telemetry = await session.startTelemetry()
    const heard: string[] = []
    telemetry.subscribe((event) => void (event.task_id !== null && heard.push(event.event_type)))
    const work = new ComputeTask({ function: () => 1 })
    const one = new AITask({ prompt: 'a', backend: 'dry' })
    const many = new AITask({ prompt: ['a', 'b'], backend: 'dry' })
    const program = new ComputeTask({ executable: 'simulate' })
    await session.submitTasks([work, one, many, program])
    expect([await work, await one, await many]).toEqual([undefined, '', ['', '']])
    expect(await program).toEqual({ stdout: '', stderr: '', exitCode: 0 })
    expect([program.stdout, program.exitCode]).toEqual(['', 0])
    await telemetry.flush()
    expect(heard.filter((type) => type === 'TaskCompleted')).toHaveLength(4)
    expect(heard).not.toContain('TaskStarted')
    expect(telemetry.readMetrics()).toMatchObject({ tasks_completed: 4, tasks_running: 0 })
  })

  it('NoopBackend refuses tasks after close(), and wrong options', async () => {
    const backend = new NoopBackend()
    expect(backend.refuse()).toBeNull()
    await backend.close()
    expect(backend.refuse()).toEqual({ field: 'backend', message: '"noop" is closed' })
    expect(() => new NoopBackend({ nam: 'x' } as object)).toThrow(/did you mean "name"/)
    expect(() => new NoopBackend({ name: '' })).toThrow(/`name`/)
    expect(() => new NoopBackend({ name: null } as never)).toThrow(/`name`/)
  })
})
