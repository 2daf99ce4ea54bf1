import { describe, expect } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

const endless = (): ComputeTask =>
  new ComputeTask({ executable: 'sleep', arguments: ['100000'], resources: { cores: 4 } })

describe('the time limit of a job', () => {
  const { create } = launchedOnSlurm('-t', '2')

  needs(...slurmNeeds)(
    'a grace that does not fit is refused with the time to ask for',
    async () => {
      await expect(create({ graceSeconds: 61 })).rejects.toMatchObject({
        name: 'ValueError',
        field: 'graceSeconds',
        hint: expect.stringContaining('at least 122 s') as unknown,
      })
    },
  )

  needs(...slurmNeeds)(
    'the time limit of a job is announced, then tasks are canceled and none begins',
    async () => {
      const session = new Session([await create({ graceSeconds: 55 })])
      const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
      const told: number[] = []
      telemetry.subscribe((event) => {
        if (event.event_type === 'tutti.AllocationEnding') told.push(event.seconds_left)
      })
      const tasks = Array.from({ length: 6 }, endless)
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
      const reason = 'AllocationEnding: the time limit of Slurm job'
      for (const task of tasks) {
        expect(task.state).toBe('CANCELED')
        expect(task.error).toMatchObject({ reason: expect.stringContaining(reason) as unknown })
      }
      await expect(session.submitTasks([endless()])).rejects.toThrow(reason)
      await session.close()
      // An earlier one may have come before the session was there.
      expect(told.at(-1)).toBeLessThanOrEqual(55)
    },
  )
})

describe('a job that is canceled while tasks run', () => {
  const { slurm, jobId, create } = launchedOnSlurm()

  needs(...slurmNeeds)('row 101: tasks end CANCELED with the state of the job', async () => {
    const session = new Session([await create({ log: { warn: () => {} } })])
    const tasks = Array.from({ length: 6 }, endless)
    await session.submitTasks(tasks)
    const { run } = await slurm()
    await run('scancel', await jobId())
    await session.waitTasks(tasks)
    const ends = tasks.map(({ state, error }) => `${state} ${String(error)}`)
    for (const end of ends) expect(end).toMatch(/CANCELED .*AllocationLostError: CANCELLED/)
    await session.close()
    await expect.poll(() => run('squeue', '-h', '-o', '%T')).toBe('')
  })
})

describe('a job that is killed at once', () => {
  const { slurm, jobId, create } = launchedOnSlurm()

  needs(...slurmNeeds)('row 101: tasks of dead agents end CANCELED, not FAILED', async () => {
    const session = new Session([await create({ log: { warn: () => {} } })])
    const tasks = Array.from({ length: 6 }, endless)
    await session.submitTasks(tasks)
    await expect.poll(() => tasks.filter(({ state }) => state === 'RUNNING').length).toBe(4)
    const { run } = await slurm()
    await run('scancel', '--signal=KILL', '--full', await jobId())
    await session.waitTasks(tasks)
    const ends = tasks.map(({ state, error }) => `${state} ${String(error)}`)
    for (const end of ends) expect(end).toMatch(/CANCELED .*AllocationLostError: [A-Z]+/)
    await session.close()
  })
})
