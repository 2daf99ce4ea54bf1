import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere, startTestCluster, type TestCluster } from './agents.ts'
import type { DriverSettings } from './fixtures/returning-session.ts'

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

/** A driver whose tasks run until they may end, and that is killed and started again. */
class HeldTasks {
  readonly cluster: TestCluster
  readonly #given: string

  constructor(cluster: TestCluster, settings: DriverSettings) {
    this.cluster = cluster
    const backend = { lossSeconds: 2, ...settings.backend }
    this.#given = JSON.stringify({ valueLength: 10, tellsEvents: true, ...settings, backend })
  }

  start(): RunningCommand {
    const { server, folder } = this.cluster
    const driver = startProgram(program, [server.url, folder, this.#given])
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    return driver
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

  /** Where a task was told to have started. */
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

async function killBoth(...all: readonly RunningCommand[]): Promise<void> {
  for (const { child } of all) child.kill('SIGKILL')
  await Promise.all(all.map(({ ended }) => ended))
}

describe('an agent that a killed driver has used', () => {
  it('is told to be lost, and what may have begun there to have moved', async () => {
    const tasks = new HeldTasks(await startTestCluster(), { count: 2 })
    await startAgentHere(tasks.cluster, { name: 'kept' })
    const lost = await tasks.cluster.agent('lost', '--cores', '1')
    const driver = tasks.start()
    await tasks.startedOn('kept')
    const uid = await tasks.startedOn('lost')
    await killBoth(driver, lost)
    const returned = tasks.start()
    await eventually(() => expect(tasks.eventsOf('lost')).toHaveLength(2))
    tasks.letEnd()
    const { stdout } = await returned.ended
    // Without `retries`: the attempt has not failed.
    expect(JSON.parse(stdout)).toEqual(['DONE', 'DONE'])
    expect(tasks.eventsOf('lost')).toEqual(['tutti.NodeLost', 'tutti.TaskMoved'])
    expect(tasks.lines('moved')).toEqual([uid])
    expect(tasks.lines('begun').filter((one) => one === uid)).toHaveLength(2)
    expect(tasks.lines('begun')).toHaveLength(3)
  })

  it('is told to be lost if it was started again', async () => {
    const tasks = new HeldTasks(await startTestCluster(), { count: 1 })
    const first = await tasks.cluster.agent('only', '--cores', '1')
    const driver = tasks.start()
    const uid = await tasks.startedOn('only')
    await killBoth(driver, first)
    await startAgentHere(tasks.cluster, { name: 'only' })
    const returned = tasks.start()
    await eventually(() => expect(tasks.lines('begun')).toHaveLength(2))
    expect(tasks.eventsOf('only')).toEqual(['tutti.NodeLost', 'tutti.TaskMoved'])
    expect(tasks.lines('moved')).toEqual([uid])
    tasks.letEnd()
    expect(JSON.parse((await returned.ended).stdout)).toEqual(['DONE'])
  })

  it('is asked for what it runs, although it drains', async () => {
    const tasks = new HeldTasks(await startTestCluster(), { count: 1 })
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
    const returned = tasks.start()
    await eventually(() => {
      const starts = tasks.lines('events').filter((line) => line.startsWith('TaskStarted'))
      expect(starts).toEqual(['TaskStarted task-0 draining', 'TaskStarted task-0 draining'])
    })
    tasks.letEnd()
    expect(JSON.parse((await returned.ended).stdout)).toEqual(['DONE'])
    expect(tasks.lines('begun')).toEqual(['task-0'])
    expect(tasks.lines('moved')).toEqual([])
  })

  it('is not missed if it has left with all ends in the stream', async () => {
    const tasks = new HeldTasks(await startTestCluster(), { count: 2 })
    const { cluster } = tasks
    const leaving = await startAgentHere(cluster, { name: 'leaving' })
    const driver = tasks.start()
    await tasks.startedOn('leaving')
    await killBoth(driver)
    leaving.drain()
    tasks.letEnd()
    await leaving.left
    await startAgentHere(cluster, { name: 'other' })
    expect(JSON.parse((await tasks.start().ended).stdout)).toEqual(['DONE', 'DONE'])
    expect(tasks.lines('begun').toSorted()).toEqual(['task-0', 'task-1'])
    expect(tasks.eventsOf('leaving')).toEqual([])
  })
})
