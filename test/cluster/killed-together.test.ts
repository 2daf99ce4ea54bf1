import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { type KeptTask, toTask } from './fixtures/kept-tasks.ts'
import { continueRecord } from './fixtures/records.ts'

const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))

/** The last session of a test is closed, and agents end. */
const sharedServer = sharedTestCluster()

/** Starts of a driver, each of which is killed. */
class KilledDrivers {
  readonly cluster: TestCluster
  readonly #tasks: readonly KeptTask[]

  constructor(cluster: TestCluster, tasks: readonly KeptTask[]) {
    this.cluster = cluster
    this.#tasks = tasks
  }

  start(): RunningCommand {
    const { server, folder } = this.cluster
    const driver = startProgram(program, [server.url, folder, JSON.stringify(this.#tasks)])
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    return driver
  }

  /** The first word of each line, which is a task. */
  lines(name: string): string[] {
    try {
      const text = readFileSync(join(this.cluster.folder, name), 'utf8')
      return text
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[0] ?? '')
    } catch {
      return []
    }
  }

  async until(name: string, expected: readonly string[]): Promise<void> {
    await eventually(() => expect(this.lines(name).toSorted()).toEqual(expected.toSorted()))
  }

  /** A start that ends when all tasks have ended. */
  async last(lossSeconds: number): Promise<{ readonly moved: readonly string[] }> {
    const { cluster } = this
    const session = new Session([await cluster.connect({ lossSeconds })], { id: 'kept' })
    onTestFinished(() => session.close())
    const moved: string[] = []
    const telemetry = await continueRecord(session, cluster.folder)
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.TaskMoved') moved.push(...event.tasks)
    })
    const tasks = this.#tasks.map((one) => toTask(cluster.folder, one))
    writeFileSync(join(cluster.folder, 'go'), '')
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    await telemetry.flush()
    expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
    return { moved }
  }
}

async function kill(...all: readonly RunningCommand[]): Promise<void> {
  for (const { child } of all) child.kill('SIGKILL')
  await Promise.all(all.map(({ ended }) => ended))
}

it('tasks whose agents are killed with their driver begin again, and are reported', async () => {
  const cluster = await sharedServer()
  const tasks = ['a', 'b'].map((uid) => ({ uid, kind: 'held', retries: 3 }) as const)
  const drivers = new KilledDrivers(cluster, tasks)
  const lost = await cluster.agent('lost', '--cores', '1')
  const first = drivers.start()
  // The other one waits there.
  await drivers.until('started', ['a'])
  await kill(lost)
  await drivers.until('moved', ['b'])
  const second = await cluster.agent('second', '--cores', '2')
  await drivers.until('begun', ['a', 'a', 'b'])
  await kill(first, second)
  await startAgentHere(cluster, { name: 'third', cores: 2 })
  const { moved } = await drivers.last(2)
  expect(moved.toSorted()).toEqual(['a', 'b'])
  expect(drivers.lines('begun').toSorted()).toEqual(['a', 'a', 'a', 'b', 'b'])
})

it('an agent that was missing and is back neither begins nor ends a task again', async () => {
  const cluster = await sharedServer()
  const first = await cluster.agent('first', '--cores', '1')
  const before = new KilledDrivers(cluster, [{ uid: 'before', kind: 'held' }]).start()
  const drivers = new KilledDrivers(cluster, [{ uid: 'a', kind: 'held' }])
  await drivers.until('started', ['before'])
  await kill(before)
  first.child.kill('SIGSTOP')
  const second = await cluster.agent('second', '--cores', '1')
  const returned = drivers.start()
  // The first agent does not answer.
  await drivers.until('begun', ['before', 'a'])
  await kill(returned, second)
  first.child.kill('SIGCONT')
  await startAgentHere(cluster, { name: 'third' })
  expect(await drivers.last(2)).toEqual({ moved: ['a'] })
  expect(drivers.lines('begun')).toEqual(['before', 'a', 'a'])
})
