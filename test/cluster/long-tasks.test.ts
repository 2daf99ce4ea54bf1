import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { sleep, systemClock } from '../../src/foundation/clock.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere } from './agents.ts'
import { heldWork, work } from './fixtures/cluster-tasks.ts'

const sharedServer = sharedTestCluster()

/** Submits tasks of priority 0, so that the driver always has some, until `stop` is called. */
class Feeder {
  readonly #session: Session
  readonly #feeding: Promise<void>
  /** Tasks that have ended. */
  ended = 0
  #left = 0
  #isStopped = false

  constructor(session: Session) {
    this.#session = session
    this.#feeding = this.#feed()
  }

  stop(): Promise<void> {
    this.#isStopped = true
    return this.#feeding
  }

  async #feed(): Promise<void> {
    while (!this.#isStopped) {
      if (this.#left < 1000) await this.#submit()
      await sleep(systemClock, 20)
    }
  }

  async #submit(): Promise<void> {
    const tasks = Array.from({ length: 500 }, (_, at) => {
      return new ComputeTask({ function: work, args: ['/dev/null', String(at), 2] })
    })
    this.#left += tasks.length
    await this.#session.submitTasks(tasks)
    const leave = (): void => {
      this.#left--
      this.ended++
    }
    for (const task of tasks) void task.then(leave, leave)
  }
}

describe('an agent with long tasks after many short ones', () => {
  it('an agent with long tasks keeps no unstarted one from an agent that comes later', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const short = Array.from({ length: 300 }, (_, at) => {
      return new ComputeTask({ function: work, args: ['/dev/null', String(at), 0] })
    })
    const long = Array.from({ length: 4 }, (_, at) => {
      return new ComputeTask({ function: heldWork, args: [cluster.folder, `long ${at}`, 1] })
    })
    await session.submitTasks([...short, ...long])
    await session.waitTasks(short)
    await startAgentHere(cluster, { name: 'second' })
    // Each has one core.
    await eventually(() => expect(readFileSync(begun, 'utf8').match(/\n/g)).toHaveLength(2))
    writeFileSync(join(cluster.folder, 'go'), '')
    await session.waitTasks(long)
  })
})

describe('an agent with urgent tasks that turn out to be long', () => {
  it('an agent hands back urgent tasks that turn out to be long', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const short = Array.from({ length: 300 }, (_, at) => {
      return new ComputeTask({ function: work, args: ['/dev/null', String(at), 0], priority: 20 })
    })
    const urgent = Array.from({ length: 4 }, (_, at) => {
      const args = [cluster.folder, `urgent ${at}`, 1] as const
      return new ComputeTask({ function: heldWork, args: [...args], priority: 10 })
    })
    await session.submitTasks([...short, ...urgent])
    await session.waitTasks(short)
    const feeder = new Feeder(session)
    try {
      await startAgentHere(cluster, { name: 'second' })
      // Each has one core.
      await eventually(() => expect(readFileSync(begun, 'utf8').match(/\n/g)).toHaveLength(2))
    } finally {
      await feeder.stop()
    }
    writeFileSync(join(cluster.folder, 'go'), '')
    await session.waitTasks(urgent)
  })
})

describe('urgent tasks that do not wait at agents', () => {
  it('urgent tasks begin on all agents although the driver has others for them', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    await startAgentHere(cluster, { name: 'second' })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const feeder = new Feeder(session)
    const begun = join(cluster.folder, 'begun')
    const urgent = Array.from({ length: 4 }, (_, at) => {
      const args = [cluster.folder, `urgent ${at}`, 1] as const
      const resources = { memoryMb: 1 }
      return new ComputeTask({ function: heldWork, args: [...args], priority: 10, resources })
    })
    try {
      await eventually(() => expect(feeder.ended).toBeGreaterThan(100))
      const { ended } = feeder
      await session.submitTasks(urgent)
      // Each has one core.
      await eventually(() => expect(readFileSync(begun, 'utf8').match(/\n/g)).toHaveLength(2))
      // The tasks that the agents had: they are not sent again.
      expect(feeder.ended - ended).toBeLessThan(3000)
    } finally {
      await feeder.stop()
    }
    writeFileSync(join(cluster.folder, 'go'), '')
    await session.waitTasks(urgent)
  })
})
