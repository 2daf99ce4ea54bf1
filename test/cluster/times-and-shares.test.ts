import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startAgent, type StartAgentOptions } from '../../src/cluster/agent/agent-options.ts'
import { type Clock, systemClock } from '../../src/foundation/clock.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startTestCluster, type TestCluster } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import { token } from './test-token.ts'

/** An agent in this process, on a clock of the test. */
async function startAgentHere(
  { server, folder }: TestCluster,
  options: Partial<StartAgentOptions>,
): Promise<void> {
  const own = { servers: server.url, token, cores: 1, workDir: join(folder, 'work') }
  const agent = await startAgent({ ...own, ...options })
  onTestFinished(() => agent.close())
}

/** The system's clock, `seconds` off in both of its times; `step` sets its wall time. */
function createShiftedClock(seconds: number): Clock & { step(by: number): void } {
  let stepped = 0
  return {
    now: () => systemClock.now() + seconds + stepped,
    monotonicMs: () => systemClock.monotonicMs() + seconds * 1000,
    after: (ms, callback, options) => systemClock.after(ms, callback, options),
    nextTurn: (callback) => systemClock.nextTurn(callback),
    step: (by) => void (stepped += by),
  }
}

describe('times of an agent', () => {
  it.each([90, -90])('whose clock is %i s off are true, also after a step', async (seconds) => {
    const cluster = await startTestCluster()
    const clock = createShiftedClock(seconds)
    await startAgentHere(cluster, { name: 'shifted', clock })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const times = new Map<string, number>()
    telemetry.subscribe(({ event_type: type, event_time: at, task_id: uid }) => {
      if (uid !== null) times.set(`${uid} ${type}`, at)
    })
    const begun = join(cluster.folder, 'begun')
    for (const uid of ['before', 'after']) {
      const from = systemClock.now()
      const task = new ComputeTask({ uid, function: work, args: [begun, uid, 400] })
      await session.submitTasks([task])
      if (uid === 'after') clock.step(3600)
      await task
      const until = systemClock.now()
      await telemetry.flush()
      const [submitted = 0, started = 0, completed = 0] = ['Submitted', 'Started', 'Completed'].map(
        (name) => times.get(`${uid} Task${name}`),
      )
      expect(from).toBeLessThanOrEqual(submitted)
      expect(submitted).toBeLessThanOrEqual(started)
      // A timer may fire up to a millisecond early.
      expect(completed - started).toBeGreaterThanOrEqual(0.398)
      expect(completed).toBeLessThanOrEqual(until)
    }
  })
})

describe('agents that are shared', () => {
  it('give two sessions equal parts', async () => {
    const cluster = await startTestCluster()
    await cluster.agent('one', '--cores', '1')
    await cluster.agent('two', '--cores', '1')
    const begun = join(cluster.folder, 'begun')
    const sessions = await Promise.all(
      ['first', 'second'].map(async (id) => new Session([await cluster.connect()], { id })),
    )
    const all = sessions.map((session) => {
      onTestFinished(() => session.close())
      return Array.from({ length: 1000 }, () => {
        return new ComputeTask({ function: work, args: [begun, 'shared', 2] })
      })
    })
    await Promise.all(sessions.map((session, at) => session.submitTasks(all[at] ?? [])))
    await Promise.race(sessions.map((session, at) => session.waitTasks(all[at] ?? [])))
    const done = all.map((tasks) => tasks.filter(({ state }) => state === 'DONE').length)
    expect(Math.min(...done)).toBeGreaterThanOrEqual(800)
  })
})

describe('a task that no agent can run', () => {
  it('waits for one with its labels, then fails and says what was looked for', async () => {
    const cluster = await startTestCluster()
    await startAgentHere(cluster, { name: 'plain' })
    const largestNode = { cores: 2, labels: { disk: 'fast' } }
    const backend = await cluster.connect({ agentTimeoutSeconds: 2, largestNode })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const create = (labels: Record<string, string>) =>
      new ComputeTask({ function: work, args: [begun, 'labelled', 0], resources: { labels } })
    await expect(session.submitTasks([create({ disk: 'slow' })])).rejects.toMatchObject({
      message: expect.stringContaining('slow') as string,
    })
    const failed = create({ disk: 'fast' })
    await session.submitTasks([failed])
    await session.waitTasks([failed])
    expect(failed.error?.cause).toMatchObject({
      code: 'NoAgentError',
      message: expect.stringContaining('"disk":"fast"') as string,
    })
    await startAgentHere(cluster, { name: 'fast', labels: { disk: 'fast' } })
    const found = create({ disk: 'fast' })
    await session.submitTasks([found])
    expect(await found).toBe('labelled')
  })
})
