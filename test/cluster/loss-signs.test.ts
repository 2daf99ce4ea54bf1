import { appendFileSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { connect } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { deriveKeys, isAnswerTo, emptyHeader, seal } from '../../src/cluster/wire/envelope.ts'
import {
  agentSubject,
  sessionSubjects,
  watcherPingSubject as watcherSubjectOf,
} from '../../src/cluster/wire/subjects.ts'
import { WorkerLostError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { runHere, type RunningCommand, startCommand } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { agentKiller, heldWork, work } from './fixtures/cluster-tasks.ts'
import { LinkProxy } from './link-proxy.ts'
import { token, useOf } from './test-token.ts'

const sharedServer = sharedTestCluster()

const lines = (file: string): string[] => {
  try {
    return readFileSync(file, 'utf8').trim().split('\n')
  } catch {
    return []
  }
}

/** Longer than the test, so that no agent is lost by its silence alone. */
const neverSilent = { lossSeconds: 3600 }

interface NodeEvent {
  readonly event_type: string
  readonly node_id: string | null
  readonly reason?: string
}

async function openSession(
  cluster: TestCluster,
  options: object,
): Promise<{ readonly session: Session; readonly nodes: NodeEvent[] }> {
  const session = new Session([await cluster.connect(options)])
  onTestFinished(() => session.close())
  const telemetry = await session.startTelemetry()
  const nodes: NodeEvent[] = []
  telemetry.subscribe((event) => {
    if (/NodeLost|TaskMoved|StaleResult/.test(event.event_type)) nodes.push(event)
  })
  return { session, nodes }
}

const brief = (events: readonly NodeEvent[]): string[] =>
  events.map(({ event_type: type, node_id: node }) => `${type} ${node}`)

/** Somebody who listens to everything, such as `nats sub '>'`. */
async function listenToAll(cluster: TestCluster): Promise<void> {
  const client = await connect({ servers: cluster.server.url, token })
  onTestFinished(() => client.close())
  client.subscribe('>', { callback() {} })
  await client.flush()
}

const statusOf = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8')
  } catch {
    return ''
  }
}

const commandOf = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}

/** The process that watches an agent. */
function watcherOf(agent: number | undefined): number {
  const found = readdirSync('/proc').find(
    (pid) => statusOf(pid).includes(`PPid:\t${agent}\n`) && commandOf(pid).includes('watcher'),
  )
  return Number(found)
}

/** Whether a watcher answers for an agent, which it does once it has heard the agent. */
async function isWatched(cluster: TestCluster, name: string): Promise<boolean> {
  const client = await connect({ servers: cluster.server.url, token })
  const { toAgent, toDriver } = deriveKeys(token, null)
  const subject = watcherSubjectOf(name)
  try {
    const question = seal(toAgent, subject, { ...emptyHeader, scope: 7 }, null)
    const { data } = await client.request(subject, question, { timeout: 1000 })
    return isAnswerTo(7, toDriver, subject, data)
  } catch {
    return false
  } finally {
    await client.close()
  }
}

describe('an agent whose process is killed', () => {
  it.each(['', 'while somebody listens to everything'])(
    'a killed agent is lost immediately, not after its silence, and its name is free %s',
    async (how) => {
      const cluster = await sharedServer()
      if (how !== '') await listenToAll(cluster)
      const agent = await cluster.agent('only', '--cores', '1')
      const { session, nodes } = await openSession(cluster, neverSilent)
      const begun = join(cluster.folder, 'begun')
      const task = new ComputeTask({ function: work, args: [begun, 'lost', 3_600_000] })
      await session.submitTasks([task])
      await eventually(() => expect(task.state).toBe('RUNNING'))
      agent.child.kill('SIGKILL')
      await session.waitTasks([task])
      expect(task.error?.cause).toBeInstanceOf(WorkerLostError)
      await eventually(() => expect(brief(nodes)).toEqual(['tutti.NodeLost only']))
      expect(nodes[0]?.reason).toBe('its process is gone')
      // Without a watcher, any subscriber would be taken for an agent; agents in processes have
      // one.
      if (how === '') await startAgentHere(cluster, { name: 'only' })
      else await cluster.agent('only', '--cores', '1')
      expect((await cluster.agents()).map(({ name }) => name)).toEqual(['only'])
    },
  )

  it('an agent that is killed with its watcher is lost by its silence', async () => {
    const cluster = await sharedServer()
    const agent = await cluster.agent('only', '--cores', '1')
    const { session, nodes } = await openSession(cluster, { lossSeconds: 2 })
    // The session knows the agent once it has run something.
    const task = new ComputeTask({ function: work, args: [join(cluster.folder, 'begun'), 'x', 0] })
    await session.submitTasks([task])
    await task
    const watcher = watcherOf(agent.child.pid)
    process.kill(watcher, 'SIGSTOP')
    agent.child.kill('SIGKILL')
    await agent.ended
    process.kill(watcher, 'SIGKILL')
    // On a busy machine it may have been lost before.
    await eventually(() => expect(brief(nodes).at(-1)).toBe('tutti.NodeLost only'))
    expect(nodes.at(-1)?.reason).toBe('it was silent for 2 s')
  })

  it('an agent killed at each start of a task fails it once its retries are used', async () => {
    const cluster = await sharedServer()
    const running = new Map<string, RunningCommand>()
    const over = new AbortController()
    onTestFinished(() => {
      over.abort()
      for (const { child } of running.values()) child.kill('SIGKILL')
    })
    const connection = ['--connect', cluster.server.url, '--token-file', cluster.tokenFile]
    // Restarts it, as a service manager would.
    const keep = async (name: string): Promise<void> => {
      while (!over.signal.aborted) {
        const agent = startCommand(['agent', ...connection, '--name', name, '--cores', '1'])
        running.set(name, agent)
        await agent.ended
      }
    }
    void keep('first')
    void keep('second')
    const { session, nodes } = await openSession(cluster, {})
    const begun = join(cluster.folder, 'begun')
    const task = new ComputeTask({ function: agentKiller, args: [begun], retries: 1 })
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect([task.state, task.error?.cause]).toEqual(['FAILED', expect.any(WorkerLostError)])
    // Each of its two attempts has one to three nodes: without a reported start it moves.
    expect(lines(begun).length).toBeGreaterThanOrEqual(2)
    expect(lines(begun).length).toBeLessThanOrEqual(6)
    // Each moved task has a lost node of its own.
    const told = brief(nodes)
    for (const [at, text] of told.entries()) {
      if (text.startsWith('tutti.TaskMoved')) {
        expect(told[at - 1]).toBe(text.replace('TaskMoved', 'NodeLost'))
      }
    }
  })
})

describe('the link of an agent', () => {
  it('row 100: a link that is reset and down for seconds loses no agent', async () => {
    const cluster = await sharedServer()
    const link = await LinkProxy.start(cluster.server.url)
    await startAgentHere({ url: link.url, folder: cluster.folder }, { name: 'only' })
    const { session, nodes } = await openSession(cluster, { lossSeconds: 60 })
    const tasks = ['one', 'two', 'three'].map(
      (uid) => new ComputeTask({ uid, function: heldWork, args: [cluster.folder, uid, 1] }),
    )
    await session.submitTasks(tasks)
    await eventually(() => expect(tasks.map(({ state }) => state)).toContain('RUNNING'))
    link.cut()
    await wait(5000)
    link.mend()
    appendFileSync(join(cluster.folder, 'go'), '')
    expect(await Promise.all(tasks)).toEqual(['x', 'x', 'x'])
    expect(lines(join(cluster.folder, 'begun')).toSorted()).toEqual(['one', 'three', 'two'])
    expect(brief(nodes)).toEqual([])
  })
})

describe('an agent that is stopped', () => {
  it('a stopped agent is listed as silent, and its watcher is restarted', async () => {
    const cluster = await sharedServer()
    const connection = ['--connect', cluster.server.url, '--token-file', cluster.tokenFile]
    const agent = await cluster.agent('only', '--cores', '1', '--only', 'programs')
    await eventually(async () => expect(await isWatched(cluster, 'only')).toBe(true))
    // A busy machine may answer too late: then the agent is stopped again.
    await eventually(async () => {
      agent.child.kill('SIGCONT')
      await eventually(async () => expect(await cluster.agents()).toHaveLength(1))
      agent.child.kill('SIGSTOP')
      const { silent } = await findAgents({ servers: cluster.server.url, token })
      expect(silent.map(({ silentSeconds }) => silentSeconds < 3)).toEqual([true])
    })
    const same = await runHere(process.cwd(), ['agent', ...connection, '--name', 'only'])
    expect(same.stderr).toContain('an agent named "only" is already connected')
    expect(same.code).toBe(3)
    agent.child.kill('SIGCONT')
    const first = watcherOf(agent.child.pid)
    process.kill(first, 'SIGKILL')
    await agent.seen('WatcherLost')
    await eventually(() => {
      const next = watcherOf(agent.child.pid)
      expect([next > 0, next === first]).toEqual([true, false])
    })
    await eventually(async () => expect(await isWatched(cluster, 'only')).toBe(true))
    agent.child.kill('SIGSTOP')
    await eventually(async () => {
      const { silent } = await findAgents({ servers: cluster.server.url, token })
      expect(silent.map(({ agent: { name } }) => name)).toEqual(['only'])
    })
    const shown = await runHere(process.cwd(), ['agents', ...connection])
    expect(shown.stdout).toMatch(/^only {2}silent for \d+ s .* only programs$/m)
  })
})

describe('somebody who listens to everything', () => {
  it('a listener that answers without the token is not taken for an agent', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'answered' })
    const client = await connect({ servers: cluster.server.url, token })
    onTestFinished(() => client.close())
    const answer = (subject: string): void => {
      client.subscribe(subject, { callback: (_, message) => void message.respond('garbage') })
    }
    answer(agentSubject('answered'))
    answer(sessionSubjects(useOf('answered')).owner)
    await client.flush()
    const session = new Session([await cluster.connect({ lossSeconds: 3600 })], { id: 'answered' })
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const task = new ComputeTask({ function: work, args: [begun, 'done', 0] })
    await session.submitTasks([task])
    expect(await task).toBe('done')
  })
})
