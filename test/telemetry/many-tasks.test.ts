import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { byRun } from '../long-run.ts'

interface Counted {
  readonly read: Readonly<Record<string, number>>
  /** Series and sum of each instrument. */
  readonly collected: Readonly<Record<string, readonly [number, number]>>
  readonly errors: number
}

it('row 45: many tasks are counted exactly, for readMetrics and for any reader', async () => {
  const tasks = byRun(100_002, 1_000_002)
  const program = join(import.meta.dirname, 'fixtures', 'count-tasks.ts')
  const args = ['--max-old-space-size=6000', program, String(tasks)]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  const { read, collected, errors } = JSON.parse(stdout) as Counted
  const [completed, failed, canceled] = [tasks / 3, tasks / 3, tasks / 3]
  expect(errors).toBe(0)
  expect(read).toMatchObject({
    tasks_submitted: tasks,
    tasks_started: tasks,
    tasks_completed: completed,
    tasks_failed: failed,
    tasks_canceled: canceled,
    tasks_running: 0,
    task_duration_seconds_count: completed + failed,
    task_duration_seconds_sum: (completed + failed) / 4,
  })
  expect(collected).toMatchObject({
    tasks_submitted: [tasks, tasks],
    tasks_started: [tasks, tasks],
    tasks_completed: [completed, completed],
    tasks_failed: [failed, failed],
    tasks_canceled: [canceled, canceled],
    tasks_running: [tasks, 0],
    task_duration_seconds: [completed + failed, completed + failed],
  })
})
