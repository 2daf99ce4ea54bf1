import { describe, expect } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { needs } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

describe('a node whose agent dies', () => {
  const { slurm, jobId, create } = launchedOnSlurm()

  needs(...slurmNeeds)(
    'a node whose agent dies gets another one; only tasks that ran there are lost',
    async () => {
      const warnings: string[] = []
      const log = { warn: (code: string, text: string) => warnings.push(`${code}: ${text}`) }
      const backend = await create({ log })
      await using session = new Session([backend], { log })
      const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
      const nodes = new Map<string, string>()
      const told: string[] = []
      telemetry.subscribe((event) => {
        if (event.event_type === 'TaskStarted') nodes.set(event.task_id ?? '', event.node_id ?? '')
        if (/Node(?:Joined|Lost)$/.test(event.event_type)) {
          told.push(`${event.event_type} ${event.node_id}`)
        }
      })
      const resources = { cores: 4 }
      const endless = { executable: 'sleep', arguments: ['100000'], resources }
      const tasks = backend.nodes.map(() => new ComputeTask(endless))
      await session.submitTasks(tasks)
      await expect.poll(() => new Set(nodes.values()).size).toBe(4)
      const lost = tasks.find(({ uid }) => nodes.get(uid) === 'n2')
      const { run } = await slurm()
      const step = ['--overlap', `--jobid=${await jobId()}`, '-w', 'n2', '-N1', '-n1', '--mem=0']
      await run('srun', ...step, 'pkill', '-KILL', '-f', 'node-agent.ts n2')
      await expect(lost).rejects.toMatchObject({
        name: 'TaskFailedError',
        cause: { name: 'WorkerLostError' },
      })
      const next = new ComputeTask({ executable: 'hostname', resources })
      await session.submitTasks([next])
      expect(await next).toMatchObject({ stdout: 'n2\n' })
      await telemetry.flush()
      expect(told.slice(-2)).toEqual(['tutti.NodeLost n2', 'tutti.NodeJoined n2'])
      expect(tasks.filter((task) => task !== lost).map(({ state }) => state)).toEqual([
        'RUNNING',
        'RUNNING',
        'RUNNING',
      ])
      const restarts = (): string[] => warnings.filter((text) => text.startsWith('AgentRestarted'))
      await expect
        .poll(restarts)
        .toEqual([
          expect.stringMatching(/node n2 is started again \(restart 1 of.*its process is gone/),
        ])
    },
  )
})
