import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  ConcurrentBackend,
  type ConcurrentBackendOptions,
} from '../../../../src/backends/local/concurrent-backend.ts'
import type { BaseEvent } from '../../../../src/events/event.ts'
import { Session } from '../../../../src/session/session.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import { neverImported } from './fixtures/endless-import.ts'
import { neverReached } from './fixtures/exit-at-import.ts'
import { add } from './fixtures/functions.ts'
import { whenImported } from './fixtures/slow-import.ts'

async function open(options: ConcurrentBackendOptions) {
  const session = new Session([await ConcurrentBackend.create({ workers: 1, ...options })])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const events: BaseEvent[] = []
  telemetry.subscribe((event) => void events.push(event))
  const typesOf = async (task: ComputeTask<unknown>): Promise<string[]> => {
    await telemetry.flush()
    return events.filter((event) => event.task_id === task.uid).map((event) => event.event_type)
  }
  return { session, events, typesOf }
}

describe.for(['thread', 'process'] as const)('imports, isolation %s', (isolation) => {
  it('neither TaskStarted nor the time-out counts the import of the module', async () => {
    const { session, events, typesOf } = await open({ isolation })
    const task = new ComputeTask({ function: whenImported, timeoutSeconds: 6 })
    await session.submitTasks([task])
    const importedAt = await task
    expect(await typesOf(task)).toContain('TaskStarted')
    const started = events.find((event) => event.event_type === 'TaskStarted')
    const ended = events.find((event) => event.event_type === 'TaskCompleted')
    // The clocks of two processes agree to a few milliseconds, the import takes 8 s.
    expect(started?.event_time).toBeGreaterThan(importedAt - 0.5)
    expect((ended as unknown as { duration_seconds: number }).duration_seconds).toBeLessThan(6)
  })

  it('an import beyond its own limit is a TaskImportError, without TaskStarted', async () => {
    const { session, typesOf } = await open({ isolation, importTimeoutSeconds: 0.4 })
    const hanging = new ComputeTask({ function: neverImported })
    await session.submitTasks([hanging])
    await session.waitTasks([hanging])
    expect((hanging.error as Error).cause).toMatchObject({
      code: 'TaskImportError',
      message: expect.stringContaining('not imported within 0.4 s') as string,
      hint: expect.stringContaining('importTimeoutSeconds') as string,
    })
    expect(await typesOf(hanging)).not.toContain('TaskStarted')
  })

  it('a module that ends the worker at its import fails its own task alone', async () => {
    const { session } = await open({ isolation })
    const tasks = [
      new ComputeTask({ function: neverReached }),
      new ComputeTask({ function: add, args: [1, 2] }),
    ] as const
    await session.submitTasks([...tasks])
    await session.waitTasks([...tasks])
    expect((tasks[0].error as Error).cause).toMatchObject({ code: 'WorkerLostError' })
    expect(tasks[1].returnValue).toBe(3)
  })
})

it('row 18: a worker process out of memory reports V8’s trace in the error alone', () => {
  const program = join(import.meta.dirname, 'fixtures', 'run-out-of-memory.ts')
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: 'utf8' })
  expect({ status, stderr }).toEqual({
    status: 0,
    stderr: 'a line\n<--- not V8, end\n',
  })
  expect(JSON.parse(stdout)).toMatchObject({
    code: 'WorkerOutOfMemoryError',
    message: expect.stringContaining('out of memory') as string,
    hint: expect.stringContaining('workerMemoryMb') as string,
    fatal: expect.stringContaining('FATAL ERROR') as string,
    stack: expect.stringContaining('<--- Last few GCs --->') as string,
  })
})
