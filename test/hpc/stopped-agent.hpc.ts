import { describe, expect } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { needs, requireCommand } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

describe('a node whose agent is stopped', () => {
  const { slurm, create } = launchedOnSlurm()

  needs(...slurmNeeds, requireCommand('nsenter'))(
    'a node whose agent is stopped is used again when it resumes, or gets another agent',
    async () => {
      const warnings: string[] = []
      const log = { warn: (code: string, text: string) => warnings.push(`${code}: ${text}`) }
      const backend = await create({ log })
      await using session = new Session([backend], { log })
      const { runAt } = await slurm()
      const signal = (name: string) => runAt('n2', 'pkill', `-${name}`, '-f', 'node-agent.ts n2')
      const silent = (): string[] => warnings.filter((text) => text.startsWith('AgentSilent'))
      const restarted = (): string[] => warnings.filter((text) => text.startsWith('AgentRestarted'))
      const isThere = (): boolean => backend.nodes.some(({ nodeId }) => nodeId === 'n2')
      const hostsOfAll = async (): Promise<string[]> => {
        const options = { executable: 'hostname', resources: { cores: 4 }, retries: 5 }
        const tasks = Array.from({ length: 8 }, () => new ComputeTask(options))
        await session.submitTasks(tasks)
        await session.waitTasks(tasks)
        return [...new Set(tasks.map(({ stdout }) => stdout?.trim() ?? ''))].toSorted()
      }
      // The watcher of a restarted agent exists when the restart is reported.
      await signal('KILL')
      await expect.poll(restarted).toHaveLength(1)
      await expect.poll(isThere).toBe(true)
      await signal('STOP')
      await expect.poll(silent).toHaveLength(1)
      expect(silent()[0]).toMatch(/the agent of node n2 .*it was silent.* has not ended/)
      expect(isThere()).toBe(false)
      await signal('CONT')
      await expect.poll(isThere).toBe(true)
      await signal('STOP')
      await expect.poll(silent).toHaveLength(2)
      expect(restarted()).toHaveLength(1)
      await signal('KILL')
      await expect
        .poll(() => restarted()[1])
        .toMatch(/node n2 is started again \(restart 2 of.*exit code 137/)
      await expect.poll(isThere).toBe(true)
      expect(await hostsOfAll()).toEqual(['n1', 'n2', 'n3', 'n4'])
    },
  )

  needs(...slurmNeeds, requireCommand('nsenter'))(
    'a node is given up after three further starts that ended, with the reason',
    async () => {
      const warnings: string[] = []
      const log = { warn: (code: string, text: string) => warnings.push(`${code}: ${text}`) }
      const backend = await create({ log })
      const { runAt } = await slurm()
      const names = (): string[] => backend.nodes.map(({ nodeId }) => nodeId).toSorted()
      for (const count of [1, 2, 3]) {
        await runAt('n3', 'pkill', '-KILL', '-f', 'node-agent.ts n3')
        await expect.poll(() => warnings.at(-1)).toMatch(`is started again (restart ${count} of`)
        await expect.poll(names).toEqual(['n1', 'n2', 'n3', 'n4'])
      }
      await runAt('n3', 'pkill', '-KILL', '-f', 'node-agent.ts n3')
      await expect.poll(() => warnings.at(-1)).toMatch(/^AgentGivenUp: node n3 .*exit code 137/)
      expect(names()).toEqual(['n1', 'n2', 'n4'])
      // An agent may be silent for a moment on a loaded machine.
      const codes = warnings.map((text) => text.slice(0, text.indexOf(':')))
      expect(codes.filter((code) => code !== 'AgentSilent')).toEqual([
        'AgentRestarted',
        'AgentRestarted',
        'AgentRestarted',
        'AgentGivenUp',
      ])
      await backend.close()
    },
  )
})
