import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { AgentSession } from '../../src/cluster/agent/agent-session.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere, startTestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { echo } from './fixtures/value-tasks.ts'

it('row 119: an unexpected error in one session ends that session alone', async () => {
  const cluster = await startTestCluster()
  const warnings: string[] = []
  const log = { warn: (code: string, text: string): void => void warnings.push(`${code}: ${text}`) }
  const agent = await startAgentHere(cluster, { name: 'only', cores: 2, log })
  const other = new Session([await cluster.connect()])
  onTestFinished(() => other.close())
  const held = new ComputeTask({ function: heldWork, args: [cluster.folder, 'held', 1] })
  await other.submitTasks([held])
  await eventually(() => expect(held.state).toBe('RUNNING'))
  const failing = new Session([await cluster.connect()], { id: 'failing' })
  onTestFinished(() => failing.close())
  const first = new ComputeTask({ function: echo, args: [1] })
  await failing.submitTasks([first])
  expect(await first).toBe(1)
  const tick = vi.spyOn(AgentSession.prototype, 'tick')
  onTestFinished(() => tick.mockRestore())
  tick.mockImplementation(function fail(this: AgentSession) {
    if (this.id !== 'failing/cluster') return false
    throw new Error('unexpected')
  })
  await eventually(() => expect(warnings).toHaveLength(1))
  tick.mockRestore()
  const text = 'AgentSessionFailed: agent "only" ends its part of session "failing/cluster"'
  expect(warnings).toEqual([expect.stringContaining(`${text} after an unexpected error: Error`)])
  const second = new ComputeTask({ function: echo, args: [2] })
  await failing.submitTasks([second])
  expect(await second).toBe(2)
  writeFileSync(join(cluster.folder, 'go'), '')
  await expect(held).resolves.toBe('x')
  await agent.close()
  expect(warnings).toHaveLength(1)
})
