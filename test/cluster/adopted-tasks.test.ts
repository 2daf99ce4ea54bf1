import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/cluster/io/agent/agent.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import type { TelemetryManager } from '../../src/telemetry/manager.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { heldWork, work } from './fixtures/cluster-tasks.ts'
import { continueRecord } from './fixtures/records.ts'
import type { DriverSettings } from './fixtures/returning-session.ts'
import { storedNames } from './stored-names.ts'

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))
/** Longer than any test lasts, so that nothing expires. */
const backend: Partial<ClusterBackendOptions> = { ownerTtlSeconds: 3600 }

/** Each test ends its agents, and closes its session. */
const sharedServer = sharedTestCluster()

/** A driver that was killed while its tasks ran; they continue. */
class LeftTasks {
  readonly cluster: TestCluster
  readonly #agent: Agent

  /** With an agent of so many cores. */
  static async start(
    settings: DriverSettings,
    begun: readonly string[],
    cores: number,
  ): Promise<LeftTasks> {
    const cluster = await sharedServer()
    const { server, folder } = cluster
    const agent = await startAgentHere(cluster, { name: 'only', cores, labels: { at: 'only' } })
    const left = new LeftTasks(cluster, agent)
    const given = JSON.stringify({ ...settings, backend })
    const killed = startProgram(program, [server.url, folder, given])
    onTestFinished(() => void killed.child.kill('SIGKILL'))
    await eventually(() => expect(left.lines('begun')).toEqual(begun))
    killed.child.kill('SIGKILL')
    await killed.ended
    return left
  }

  private constructor(cluster: TestCluster, agent: Agent) {
    this.cluster = cluster
    this.#agent = agent
  }

  lines(name: string): string[] {
    try {
      return readFileSync(join(this.cluster.folder, name), 'utf8').trim().split('\n').toSorted()
    } catch {
      return []
    }
  }

  letTell(): void {
    writeFileSync(join(this.cluster.folder, 'tell'), '')
  }

  /** The agent finishes what it has, and leaves. */
  async drain(): Promise<void> {
    this.#agent.drain()
    expect(await this.#agent.left).toBe(0)
  }

  letEnd(): void {
    writeFileSync(join(this.cluster.folder, 'go'), '')
  }

  /** The driver returns with its record. */
  async session(): Promise<{ session: Session; telemetry: TelemetryManager }> {
    const { cluster } = this
    const session = new Session([await cluster.connect(backend)], { id: 'returning' })
    onTestFinished(() => session.close())
    return { session, telemetry: await continueRecord(session, cluster.folder) }
  }

  held(uid: string, valueLength: number): ComputeTask<string> {
    const args = [this.cluster.folder, uid, valueLength] as const
    return new ComputeTask({ uid, function: heldWork, args })
  }

  /** A task that no earlier start had. */
  other(uid: string, labels: Readonly<Record<string, string>> = {}): ComputeTask<string> {
    const args = [join(this.cluster.folder, 'others'), uid, 0] as const
    return new ComputeTask({ uid, function: work, args, resources: { labels } })
  }
}

describe('a task that runs on when its driver is killed, and that is submitted again', () => {
  it.each([10, 500_000])(
    'an adopted task gets the result that came before: values of %i bytes',
    async (length) => {
      const uids = ['task-0', 'task-1']
      const left = await LeftTasks.start({ count: 2, valueLength: length }, uids, 3)
      const { session, telemetry } = await left.session()
      const stale: unknown[] = []
      telemetry.subscribe(({ event_type: type, task_id }) => {
        if (type === 'tutti.StaleResult') stale.push(task_id)
      })
      // Once this task has ended, the agent has reported the tasks that it holds.
      const first = left.other('first')
      await session.submitTasks([first])
      await first
      left.letEnd()
      await eventually(() => expect(left.lines('returned')).toEqual(uids))
      // This result is reported after those of the tasks that have returned.
      const second = left.other('second')
      await session.submitTasks([second])
      await second
      const tasks = uids.map((uid) => left.held(uid, length))
      await session.submitTasks(tasks)
      const values = await Promise.all(tasks)
      expect(values.map((value) => value.length)).toEqual([length, length])
      expect(left.lines('begun')).toEqual(uids)
      await telemetry.flush()
      expect(stale).toEqual([])
    },
  )

  it.each(['runs on', 'has ended', 'has ended with its agent'])(
    'an adopted task keeps the reports sent while the driver was away, where it %s',
    async (how) => {
      const left = await LeftTasks.start({ count: 1, valueLength: 10 }, ['task-0'], 1)
      left.letTell()
      await eventually(() => expect(left.lines('told')).toEqual(['task-0']))
      if (how !== 'runs on') left.letEnd()
      if (how === 'has ended with its agent') await left.drain()
      else if (how === 'has ended') {
        await eventually(() => expect(left.lines('returned')).toEqual(['task-0']))
      }
      const { session, telemetry } = await left.session()
      const told: unknown[] = []
      const times: number[] = []
      telemetry.subscribe((event) => {
        if (event.task_id !== 'task-0') return
        told.push((event as { readonly number?: unknown }).number ?? event.event_type)
        times.push(event.event_time)
      })
      const task = left.held('task-0', 10)
      await session.submitTasks([task])
      left.letEnd()
      expect(await task).toHaveLength(10)
      await telemetry.flush()
      expect(told.slice(-4)).toEqual(['TaskStarted', 1, 2, 'TaskCompleted'])
      expect(times.slice(-4)).toEqual(times.slice(-4).toSorted((a, b) => a - b))
    },
  )

  it('an adopted task ends at its node if it is canceled before its agent answers', async () => {
    const settings = { count: 1, hasPrograms: true, taskMs: 3_600_000 }
    const left = await LeftTasks.start(settings, ['task-0'], 1)
    const { session } = await left.session()
    const uid = 'task-0'
    const again = new ComputeTask({ uid, executable: '/bin/sh', arguments: ['-c', 'exit 1'] })
    const other = left.other('other')
    await session.submitTasks([again, other])
    session.cancel(again)
    // It needs the core that the canceled one held.
    expect(await other).toBe('other')
    expect(again.state).toBe('CANCELED')
  })
  it('an adopted task ends at its node if the session closes before the answer', async () => {
    const settings = { count: 1, hasPrograms: true, taskMs: 3_600_000 }
    const left = await LeftTasks.start(settings, ['task-0'], 1)
    const { session } = await left.session()
    await session.submitTasks([left.other('other')])
    await session.close()
    const { cluster } = left
    await eventually(async () => {
      expect(await cluster.agents()).toMatchObject([{ sessions: 0 }])
    })
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it('a task that had not begun is not adopted unless it is submitted again', async () => {
    const left = await LeftTasks.start({ count: 2, valueLength: 10 }, ['task-0'], 1)
    await startAgentHere(left.cluster, { name: 'second', labels: { at: 'second' } })
    const { session } = await left.session()
    // Once this task has ended, all agents have answered.
    const first = left.other('first', { at: 'second' })
    await session.submitTasks([first])
    await first
    const second = left.other('second', { at: 'only' })
    await session.submitTasks([second])
    left.letEnd()
    // It waited for the core, as did the task that had not started.
    expect(await second).toBe('second')
    expect(left.lines('begun')).toEqual(['task-0'])
    const tasks = ['task-0', 'task-1'].map((uid) => left.held(uid, 10))
    await session.submitTasks(tasks)
    await Promise.all(tasks)
    expect(left.lines('begun')).toEqual(['task-0', 'task-1'])
  })
})
