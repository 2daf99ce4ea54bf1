import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/cluster/io/agent/agent.ts'
import type { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { echo } from './fixtures/value-tasks.ts'

const sharedServer = sharedTestCluster()

interface Opened {
  readonly backend: ClusterBackend
  readonly session: Session
  /** The nodes of tasks, or null for those that have not started. */
  readonly nodesOf: (tasks: readonly ComputeTask<unknown>[]) => Promise<(string | null)[]>
}

async function openSession(cluster: TestCluster, agents: number, more = {}): Promise<Opened> {
  const backend = await cluster.connect(more)
  const session = new Session([backend])
  onTestFinished(() => session.close())
  await eventually(() => expect(backend.nodes).toHaveLength(agents))
  const telemetry = await session.startTelemetry()
  const nodes = new Map<string, string | null>()
  telemetry.subscribe((event) => {
    if (event.event_type === 'TaskStarted') nodes.set(event.task_id ?? '', event.node_id)
  })
  return {
    backend,
    session,
    nodesOf: async (tasks) => {
      await telemetry.flush()
      return tasks.map(({ uid }) => nodes.get(uid) ?? null)
    },
  }
}

const functions = (count: number): ComputeTask<unknown>[] =>
  Array.from({ length: count }, (_, at) => new ComputeTask({ function: echo, args: [at] }))

const programs = (count: number, executable: string): ComputeTask<unknown>[] =>
  Array.from({ length: count }, () => new ComputeTask<unknown>({ executable }))

/** Returns how it is ended. */
async function startAndDrain(start: () => Promise<Agent>): Promise<() => Promise<unknown>> {
  const agent = await start()
  return () => {
    agent.drain()
    return agent.left
  }
}

/** Returns how it is ended. */
async function startAndKill(cluster: TestCluster): Promise<() => Promise<unknown>> {
  const { child, ended } = await cluster.agent('programs', '--cores', '1', '--only', 'programs')
  return () => {
    child.kill('SIGKILL')
    return ended
  }
}

describe('a task that some agents do not allow', () => {
  it('a task that some agents refuse runs on one that allows its kind and path', async () => {
    const cluster = await sharedServer()
    const own = join(cluster.folder, 'own.sh')
    writeFileSync(own, '#!/bin/sh\n', { mode: 0o755 })
    await startAgentHere(cluster, { name: 'functions', cores: 2, only: 'functions' })
    await startAgentHere(cluster, {
      name: 'programs',
      cores: 2,
      only: 'programs',
      allow: ['/**/true'],
    })
    await startAgentHere(cluster, { name: 'own', cores: 2, allow: [own] })
    const { session, nodesOf } = await openSession(cluster, 3)
    const [called, truths, owns] = [functions(12), programs(6, '/bin/true'), programs(6, own)]
    await session.submitTasks([...called, ...truths, ...owns])
    await session.waitTasks([...called, ...truths, ...owns])
    const all = [...called, ...truths, ...owns]
    expect(all.map(({ error }) => error?.message)).toEqual(all.map(() => undefined))
    expect(await nodesOf(called)).toEqual(called.map(() => 'functions'))
    expect(await nodesOf(truths)).toEqual(truths.map(() => 'programs'))
    expect(await nodesOf(owns)).toEqual(owns.map(() => 'own'))
  })

  it('a task that all agents refuse fails despite retries, and names them all', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first', only: 'functions' })
    await startAgentHere(cluster, { name: 'second', allow: ['/nowhere/*'] })
    const { session, nodesOf } = await openSession(cluster, 2)
    const task = new ComputeTask({ executable: '/bin/echo', retries: 3 })
    await session.submitTasks([task])
    await session.waitTasks([task])
    const error = task.error?.cause as Error
    const hint = 'Start the agent with another --only or --allow.'
    expect(error).toMatchObject({ code: 'NotAllowedError', hint })
    expect(error.message).toContain('agent "first" runs functions only, not /bin/echo')
    expect(error.message).toMatch(/agent "second" does not allow \/\S*echo\b/)
    expect(await nodesOf([task])).toEqual([null])
  })

  it('a task that some agents refuse waits for the resources of one that allows it', async () => {
    const cluster = await sharedServer()
    const folder = join(cluster.folder, 'programs')
    mkdirSync(folder)
    const go = join(cluster.folder, 'go')
    const wait = join(folder, 'wait.sh')
    const script = `#!/bin/sh\nwhile [ ! -e ${go} ]; do sleep 0.02; done\n`
    writeFileSync(wait, script, { mode: 0o755 })
    await startAgentHere(cluster, { name: 'wide' })
    await startAgentHere(cluster, { name: 'narrow', only: 'functions' })
    const { session, nodesOf } = await openSession(cluster, 2)
    const [running, waiting] = programs(2, wait)
    if (running === undefined || waiting === undefined) throw new Error('no tasks')
    await session.submitTasks([running, waiting])
    await eventually(async () => expect(await nodesOf([running])).toEqual(['wide']))
    const [first] = functions(1)
    if (first === undefined) throw new Error('no task')
    await session.submitTasks([first])
    await first
    expect(await nodesOf([first])).toEqual(['narrow'])
    expect(running.state).toBe('RUNNING')
    writeFileSync(go, '')
    await session.waitTasks([running, waiting])
    expect(await nodesOf([running, waiting])).toEqual(['wide', 'wide'])
  })

  it('a refused task runs on an agent that was started again with other rules', async () => {
    const cluster = await sharedServer()
    const narrow = await startAgentHere(cluster, { name: 'first', allow: ['/nowhere/*'] })
    const { backend, session } = await openSession(cluster, 1)
    const [refused, allowed] = programs(2, '/bin/true')
    if (refused === undefined || allowed === undefined) throw new Error('no tasks')
    await session.submitTasks([refused])
    await session.waitTasks([refused])
    expect(refused.error?.cause).toMatchObject({ code: 'NotAllowedError' })
    narrow.drain()
    await narrow.left
    await eventually(() => expect(backend.nodes).toEqual([]))
    await session.submitTasks([allowed])
    await startAgentHere(cluster, { name: 'first', allow: ['/**/true'] })
    await session.waitTasks([allowed])
    expect(allowed.state).toBe('DONE')
  })

  it.each(['has left', 'was killed'])(
    'a refused task waits while the only agent that allows it %s, and is started again',
    async (how) => {
      const cluster = await sharedServer()
      await startAgentHere(cluster, { name: 'functions', only: 'functions' })
      const start = () => startAgentHere(cluster, { name: 'programs', only: 'programs' })
      const end = how === 'has left' ? await startAndDrain(start) : await startAndKill(cluster)
      const { session } = await openSession(cluster, 2)
      const [before] = programs(1, '/bin/true')
      if (before === undefined) throw new Error('no task')
      await session.submitTasks([before])
      await before
      const lost: string[] = []
      session.telemetry?.subscribe((event) => {
        if (/Node(Lost|Drained)/.test(event.event_type)) lost.push(event.node_id ?? '')
      })
      await end()
      await eventually(() => expect(lost).toContain('programs'))
      const waiting = programs(4, '/bin/true')
      await session.submitTasks(waiting)
      await start()
      await session.waitTasks(waiting)
      expect(waiting.map(({ error }) => error?.message)).toEqual(waiting.map(() => undefined))
    },
  )

  it('a refused task names the agents if the allowing one does not return in time', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'functions', only: 'functions' })
    const gone = await startAgentHere(cluster, { name: 'programs', only: 'programs' })
    const { session } = await openSession(cluster, 2, { agentTimeoutSeconds: 3 })
    gone.drain()
    await gone.left
    const [task] = programs(1, '/bin/true')
    if (task === undefined) throw new Error('no task')
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(task.error?.cause).toMatchObject({
      code: 'NotAllowedError',
      message: 'agent "functions" runs functions only, not /bin/true',
    })
  })
})

it('a program that cannot begin on a node names that node', async () => {
  const cluster = await sharedServer()
  await startAgentHere(cluster, { name: 'lacking' })
  const { session } = await openSession(cluster, 1)
  const missing = join(cluster.folder, 'missing')
  const script = join(cluster.folder, 'script.sh')
  writeFileSync(script, '#!/bin/sh\n', { mode: 0o600 })
  const tasks = [
    new ComputeTask({ executable: missing }),
    new ComputeTask({ executable: script }),
    new ComputeTask({ executable: '/bin/true', cwd: missing }),
    new ComputeTask({ executable: '/bin/true', captureStdio: { stdout: join(missing, 'out') } }),
  ]
  await session.submitTasks(tasks)
  await session.waitTasks(tasks)
  const causes = tasks.map(({ error }) => error?.cause as { code: string; message: string })
  expect(causes.map(({ code, message }) => [code, message.split(':')[0]])).toEqual([
    ['ExecutableNotFoundError', 'node lacking'],
    ['ExecutableNotPermittedError', 'node lacking'],
    ['CwdNotFoundError', 'node lacking'],
    ['OutputFileError', 'node lacking'],
  ])
})
