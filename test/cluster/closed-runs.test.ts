import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect, type NatsConnection, type Subscription } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/foundation/clock.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { type KeptTask, toTask } from './fixtures/kept-tasks.ts'
import { continueRecord } from './fixtures/records.ts'
import { LinkProxy } from './link-proxy.ts'
import { storedNames } from './stored-names.ts'
import { token } from './test-token.ts'

const sharedServer = sharedTestCluster()

const lines = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []

/** A run of this id, with one task, which waits for a file and returns a text of this length. */
class Run {
  readonly session: Session
  readonly warnings: readonly string[]
  readonly task: ComputeTask<string>

  static async start(cluster: TestCluster, length: number, clock = systemClock): Promise<Run> {
    const warnings: string[] = []
    const log = { warn: (code: string) => void warnings.push(code) }
    const backend = await cluster.connect({ lossSeconds: 5, ownerTtlSeconds: 3600, clock, log })
    const session = new Session([backend], { id: 'returning' })
    onTestFinished(() => session.close())
    const args = [cluster.folder, 'task-0', length] as const
    const run = new Run(
      session,
      warnings,
      new ComputeTask({ uid: 'task-0', function: heldWork, args }),
    )
    await session.submitTasks([run.task])
    return run
  }

  private constructor(session: Session, warnings: readonly string[], task: ComputeTask<string>) {
    this.session = session
    this.warnings = warnings
    this.task = task
  }
}

describe('a session that was closed while an agent was away leaves nothing to the next one', () => {
  it.each([
    ['runs on there', 'before the next run'],
    ['runs on there', 'after the next run has begun'],
    ['has ended there', 'before the next run'],
    ['has ended there', 'after the next run has begun'],
  ])('a closed run: its task %s, and the agent is back %s', async (how, when) => {
    const cluster = await sharedServer()
    const { server, folder } = cluster
    const link = await LinkProxy.start(server.url)
    await startAgentHere({ url: link.url, folder }, { name: 'away' })
    const letEnd = (): void => writeFileSync(join(folder, 'go'), '')
    const first = await Run.start(cluster, 1)
    await eventually(() => expect(lines(join(folder, 'begun'))).toEqual(['task-0']))
    await eventually(() => expect(first.task.state).toBe('RUNNING'))
    link.cut()
    await first.session.waitTasks([first.task])
    expect(first.task.error?.cause).toMatchObject({ code: 'NodeLostError' })
    await first.session.close()
    expect(await storedNames(server.url)).toEqual([])
    if (how === 'has ended there') {
      letEnd()
      await eventually(() => expect(lines(join(folder, 'returned'))).toEqual(['task-0']))
    }
    const isBack = async (): Promise<void> => {
      link.mend()
      await eventually(async () => expect(await cluster.agents()).toHaveLength(1))
    }
    if (when === 'before the next run') await isBack()
    const second = await Run.start(cluster, 2)
    await isBack()
    letEnd()
    expect(await second.task).toBe('xx')
    // The agent's data of the first run are not sent to the second one.
    expect(second.warnings).not.toContain('MessageRefused')
  })
})

/** An attacker who reaches the broker, records messages and replays them. */
class Stranger {
  readonly heard: { readonly subject: string; readonly data: Uint8Array }[] = []
  readonly #connection: NatsConnection
  readonly #listening: Subscription

  /** Ends with the test. */
  static async listen(servers: string, subject: string): Promise<Stranger> {
    const connection = await connect({ servers, token })
    onTestFinished(() => connection.close())
    const stranger = new Stranger(connection, subject)
    await connection.flush()
    return stranger
  }

  private constructor(connection: NatsConnection, wanted: string) {
    this.#connection = connection
    this.#listening = connection.subscribe(wanted, {
      callback: (_, { subject, data }) =>
        void this.heard.push({ subject, data: Uint8Array.from(data) }),
    })
  }

  async stopListening(): Promise<void> {
    await this.#connection.flush()
    this.#listening.unsubscribe()
  }

  async sendAgain(): Promise<void> {
    for (const { subject, data } of this.heard) this.#connection.publish(subject, data)
    await this.#connection.flush()
  }
}

it('row 97: the end of a closed run, sent again, ends nothing of a later one', async () => {
  const cluster = await sharedServer()
  const { server, folder } = cluster
  const stranger = await Stranger.listen(server.url, 'tutti1.agent.>')
  // With a watcher, because otherwise any subscriber would count as an agent of this name.
  await cluster.agent('first', '--cores', '1')
  // Its start counts as later than that of the next run.
  const isAhead = { value: () => systemClock.now() + 3600 }
  const ahead = Object.create(systemClock, { now: isAhead }) as typeof systemClock
  const first = await Run.start(cluster, 1, ahead)
  writeFileSync(join(folder, 'go'), '')
  await first.task
  await first.session.close()
  await stranger.stopListening()
  rmSync(join(folder, 'go'))
  const second = await Run.start(cluster, 2)
  await eventually(() => expect(lines(join(folder, 'begun'))).toHaveLength(2))
  await stranger.sendAgain()
  // Answered after these.
  expect(await cluster.agents()).toMatchObject([{ sessions: 1 }])
  writeFileSync(join(folder, 'go'), '')
  expect(await second.task).toBe('xx')
  expect(lines(join(folder, 'begun'))).toHaveLength(2)
})

it('row 97: messages of a closed run complete nothing in a later run of its id', async () => {
  const cluster = await sharedServer()
  const { server, folder } = cluster
  const [begun, go] = [join(folder, 'begun'), join(folder, 'go')]
  const task: KeptTask = { uid: 'task', kind: 'held' }
  const warnings: string[] = []
  const log = { warn: (code: string): void => void warnings.push(code) }
  const start = async (
    lossSeconds: number,
    returns = false,
  ): Promise<{ session: Session; kept: ComputeTask<unknown> }> => {
    const backend = await cluster.connect({ lossSeconds, ownerTtlSeconds: 3600, log })
    const session = new Session([backend], { id: 'kept' })
    onTestFinished(() => session.close())
    if (returns) await continueRecord(session, folder)
    const kept = toTask(folder, task)
    await session.submitTasks([kept])
    return { session, kept }
  }
  const stranger = await Stranger.listen(server.url, 'tutti1.session.>')
  const agent = await cluster.agent('first', '--cores', '1')
  writeFileSync(go, '')
  // The agent's process is silent while it waits for a core, and must not be lost then.
  const first = await start(3600)
  await first.kept
  await first.session.close()
  await stranger.stopListening()
  expect(stranger.heard.some(({ subject }) => subject.includes('.ends.'))).toBe(true)
  rmSync(go)
  // The driver of the second run dies, and so does its agent with its running tasks.
  const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))
  const driver = startProgram(program, [server.url, folder, JSON.stringify([task])])
  onTestFinished(() => void driver.child.kill('SIGKILL'))
  await eventually(() => expect(lines(begun)).toHaveLength(2))
  for (const { child, ended } of [driver, agent]) {
    child.kill('SIGKILL')
    await ended
  }
  await stranger.sendAgain()
  await startAgentHere(cluster, { name: 'second' })
  // As long as it looks for the agent that was killed; the other one is in its own process.
  const returned = await start(1, true)
  await eventually(() => expect(lines(begun)).toHaveLength(3))
  await eventually(() => expect(returned.kept.state).toBe('RUNNING'))
  writeFileSync(go, '')
  await returned.kept
  expect(warnings).toEqual(['MessageRefused'])
})
