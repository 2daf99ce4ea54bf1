import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { type KeptTask, toTask } from './fixtures/kept-tasks.ts'
import { storedObjects } from './stored-names.ts'

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

  lines(name: string): string[] {
    try {
      return readFileSync(join(this.cluster.folder, name), 'utf8').trim().split('\n')
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
    const telemetry = await session.startTelemetry()
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

it('a task that runs again because its value was taken gets a new number', async () => {
  const cluster = await sharedServer()
  const drivers = new KilledDrivers(cluster, [{ uid: 'large', kind: 'large once' }])
  const agent = await cluster.agent('first', '--cores', '1')
  const first = drivers.start()
  await drivers.until('ended', ['large DONE'])
  await eventually(async () => expect(await storedObjects(cluster.server.url)).toEqual([]))
  await kill(first, agent)
  const second = await cluster.agent('second', '--cores', '1')
  const returned = drivers.start()
  // The agent that is missing may have begun the second attempt.
  await drivers.until('begun', ['large 1', 'large 3'])
  await kill(returned, second)
  await startAgentHere(cluster, { name: 'third' })
  expect(await drivers.last(2)).toEqual({ moved: ['large'] })
  expect(drivers.lines('begun')).toEqual(['large 1', 'large 3', 'large 4'])
})

it('numbers of attempts that moved before the driver was killed are not used again', async () => {
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
  await drivers.until('begun', ['a 1', 'a 2', 'b 2'])
  await kill(first, second)
  await startAgentHere(cluster, { name: 'third', cores: 2 })
  const { moved } = await drivers.last(2)
  expect(moved.toSorted()).toEqual(['a', 'b'])
  expect(drivers.lines('begun').toSorted()).toEqual(['a 1', 'a 2', 'a 3', 'b 2', 'b 3'])
})

it('a number that was skipped for a missing agent is not used when the agent is back', async () => {
  const cluster = await sharedServer()
  const first = await cluster.agent('first', '--cores', '1')
  const before = new KilledDrivers(cluster, [{ uid: 'before', kind: 'held' }]).start()
  const drivers = new KilledDrivers(cluster, [{ uid: 'a', kind: 'held' }])
  await drivers.until('started', ['before'])
  await kill(before)
  first.child.kill('SIGSTOP')
  const second = await cluster.agent('second', '--cores', '1')
  const returned = drivers.start()
  // The first agent does not answer, and may have begun attempt 1.
  await drivers.until('begun', ['before 1', 'a 2'])
  await kill(returned, second)
  first.child.kill('SIGCONT')
  await startAgentHere(cluster, { name: 'third' })
  expect(await drivers.last(2)).toEqual({ moved: ['a'] })
  expect(drivers.lines('begun')).toEqual(['before 1', 'a 2', 'a 3'])
})
