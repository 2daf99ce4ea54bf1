import { expect } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

const { create } = launchedOnSlurm()

needs(...slurmNeeds)(
  'a task that needs longer than is left of the allocation does not begin',
  async () => {
    const session = new Session([await create()])
    const task = (seconds: number): ComputeTask =>
      new ComputeTask({ executable: 'hostname', resources: { seconds } })
    // The job has an hour.
    const [long, short] = [task(3600), task(600)]
    await session.submitTasks([long, short])
    await short
    expect(long.state).toBe('QUEUED')
    await session.close()
    expect(long.state).toBe('CANCELED')
  },
)
