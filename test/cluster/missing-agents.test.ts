import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { type DriverSettings, runReturning } from './fixtures/returning-session.ts'

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

/** A driver whose tasks run until they may end, and that is killed and started again. */
class HeldTasks {
  readonly cluster: TestCluster
  readonly #settings: DriverSettings

  constructor(cluster: TestCluster, count: number) {
    this.cluster = cluster
    const backend = { lossSeconds: 2 }
    this.#settings = { count, valueLength: 10, tellsEvents: true, backend }
  }

  /** Starts a driver that is killed later. */
  start(): RunningCommand {
    const { url, folder } = this.cluster
    const driver = startProgram(program, [url, folder, JSON.stringify(this.#settings)])
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    return driver
  }

  /** Starts the next driver in this process; resolves with the states of the tasks. */
  startLast(): Promise<readonly unknown[]> {
    const { url, folder } = this.cluster
    return runReturning(url, folder, this.#settings)
  }

  letEnd(): void {
    writeFileSync(join(this.cluster.folder, 'go'), '')
  }

  /** The lines of a file in which tasks or the driver note something. */
  lines(name: string): string[] {
    try {
      return readFileSync(join(this.cluster.folder, name), 'utf8').trim().split('\n')
    } catch {
      return []
    }
  }

  /** The uid of a task that was reported to have started on the node. */
  async startedOn(node: string): Promise<string> {
    return eventually(() => {
      const isStart = (line: string): boolean =>
        line.startsWith('TaskStarted') && line.endsWith(` ${node}`)
      const [, uid] = this.lines('events').find(isStart)?.split(' ') ?? []
      return uid ?? expect.unreachable(`nothing has started on ${node}`)
    })
  }

  eventsOf(node: string): string[] {
    const told = this.lines('events').filter((line) => line.endsWith(` null ${node}`))
    return told.map((line) => line.split(' ')[0] ?? '').filter((type) => /Lost|Moved/.test(type))
  }
}

/** Sessions end with their test, and so do agents. */
const sharedServer = sharedTestCluster()

async function killBoth(...all: readonly RunningCommand[]): Promise<void> {
  for (const { child } of all) child.kill('SIGKILL')
  await Promise.all(all.map(({ ended }) => ended))
}

describe('an agent that a killed driver has used', () => {
  it('an agent of a killed driver is reported as lost, and its tasks as moved', async () => {
    const tasks = new HeldTasks(await sharedServer(), 2)
    await startAgentHere(tasks.cluster, { name: 'kept' })
    const lost = await tasks.cluster.agent('lost', '--cores', '1')
    const driver = tasks.start()
    await tasks.startedOn('kept')
    const uid = await tasks.startedOn('lost')
    await killBoth(driver, lost)
    const returned = tasks.startLast()
    await eventually(() => expect(tasks.eventsOf('lost')).toHaveLength(2))
    tasks.letEnd()
    // Without `retries`: the attempt has not failed.
    expect(await returned).toEqual(['DONE', 'DONE'])
    expect(tasks.eventsOf('lost')).toEqual(['tutti.NodeLost', 'tutti.TaskMoved'])
    expect(tasks.lines('moved')).toEqual([uid])
    expect(tasks.lines('begun').filter((one) => one === uid)).toHaveLength(2)
    expect(tasks.lines('begun')).toHaveLength(3)
  })

  it('an agent of a killed driver is reported as lost if it was started again', async () => {
    const tasks = new HeldTasks(await sharedServer(), 1)
    const first = await tasks.cluster.agent('only', '--cores', '1')
    const driver = tasks.start()
    const uid = await tasks.startedOn('only')
    await killBoth(driver, first)
    await startAgentHere(tasks.cluster, { name: 'only' })
    const returned = tasks.startLast()
    await eventually(() => expect(tasks.lines('begun')).toHaveLength(2))
    expect(tasks.eventsOf('only')).toEqual(['tutti.NodeLost', 'tutti.TaskMoved'])
    expect(tasks.lines('moved')).toEqual([uid])
    tasks.letEnd()
    expect(await returned).toEqual(['DONE'])
  })

  it('an agent of a killed driver is asked for its running tasks, although it drains', async () => {
    const tasks = new HeldTasks(await sharedServer(), 1)
    const { cluster } = tasks
    const draining = await startAgentHere(cluster, { name: 'draining' })
    const driver = tasks.start()
    await tasks.startedOn('draining')
    await killBoth(driver)
    draining.drain()
    await eventually(async () => {
      expect(await cluster.agents()).toMatchObject([{ state: 'draining' }])
    })
    await startAgentHere(cluster, { name: 'other' })
    const returned = tasks.startLast()
    await eventually(() => {
      const starts = tasks.lines('events').filter((line) => line.startsWith('TaskStarted'))
      expect(starts).toEqual(['TaskStarted task-0 draining', 'TaskStarted task-0 draining'])
    })
    tasks.letEnd()
    expect(await returned).toEqual(['DONE'])
    expect(tasks.lines('begun')).toEqual(['task-0'])
    expect(tasks.lines('moved')).toEqual([])
  })

  it('an agent that left while its driver was away has stored its results', async () => {
    const tasks = new HeldTasks(await sharedServer(), 2)
    const { cluster } = tasks
    const leaving = await startAgentHere(cluster, { name: 'leaving' })
    const driver = tasks.start()
    await tasks.startedOn('leaving')
    await killBoth(driver)
    leaving.drain()
    tasks.letEnd()
    await leaving.left
    await startAgentHere(cluster, { name: 'other' })
    expect(await tasks.startLast()).toEqual(['DONE', 'DONE'])
    expect(tasks.lines('begun').toSorted()).toEqual(['task-0', 'task-1'])
    // It had one core, and has returned the other task to nobody.
    expect(tasks.eventsOf('leaving')).toEqual(['tutti.NodeLost', 'tutti.TaskMoved'])
    expect(tasks.lines('moved')).toEqual(['task-1'])
  })
})
