import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { AgentSession } from '../../src/cluster/io/agent/agent-session.ts'
import type { AgentStimulus } from '../../src/cluster/protocol/agent/agent-stimuli.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere, startTestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { echo } from './fixtures/value-tasks.ts'
import { LinkProxy } from './link-proxy.ts'

/** Two sessions on one agent: a task of the first runs until the file `go` exists. */
async function startTwoSessions() {
  const cluster = await startTestCluster()
  const warnings: string[] = []
  const log = { warn: (code: string, text: string): void => void warnings.push(`${code}: ${text}`) }
  const link = await LinkProxy.start(cluster.url)
  const own = { name: 'only', cores: 2, log }
  const agent = await startAgentHere({ ...cluster, url: link.url }, own)
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
  const letGo = (): void => writeFileSync(join(cluster.folder, 'go'), '')
  return { agent, failing, held, letGo, link, warnings }
}

/** Makes the agent's part of the session "failing" throw when this happens. */
function failIn(kind: AgentStimulus['kind']): void {
  // oxlint-disable-next-line typescript/unbound-method -- it is called with the session
  const { tell } = AgentSession.prototype
  const spy = vi.spyOn(AgentSession.prototype, 'tell')
  onTestFinished(() => spy.mockRestore())
  spy.mockImplementation(function fail(this: AgentSession, stimulus) {
    const isUp = stimulus.kind !== 'link' || stimulus.isUp
    const mustFail = this.id === 'failing/cluster' && stimulus.kind === kind && isUp
    if (!mustFail) return tell.call(this, stimulus)
    throw new Error('unexpected')
  })
}

const failed = expect.stringContaining(
  'AgentSessionFailed: agent "only" ends its part of session "failing/cluster" after an ' +
    'unexpected error: Error',
)

it('row 119: an unexpected error in one session ends that session alone', async () => {
  const { agent, failing, held, letGo, warnings } = await startTwoSessions()
  failIn('tick')
  await eventually(() => expect(warnings).toEqual([failed]))
  vi.restoreAllMocks()
  const second = new ComputeTask({ function: echo, args: [2] })
  await failing.submitTasks([second])
  expect(await second).toBe(2)
  letGo()
  await expect(held).resolves.toBe('x')
  await agent.close()
  expect(warnings).toHaveLength(1)
})

it('row 119: an unexpected error while an agent drains ends the session alone', async () => {
  const { agent, held, letGo, warnings } = await startTwoSessions()
  failIn('drain')
  agent.drain()
  expect(warnings).toEqual([failed])
  letGo()
  await expect(held).resolves.toBe('x')
  expect(await agent.left).toBe(0)
})

it('row 119: an unexpected error after a reconnect ends the session alone', async () => {
  const { held, letGo, link, warnings } = await startTwoSessions()
  failIn('link')
  link.cut()
  link.mend()
  await eventually(() => expect(warnings).toContainEqual(failed))
  letGo()
  await expect(held).resolves.toBe('x')
})
