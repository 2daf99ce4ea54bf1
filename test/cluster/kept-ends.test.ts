import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { connectToNats } from '../../src/cluster/broker/nats.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { sessionSubjects } from '../../src/cluster/wire/subjects.ts'
import { processLog } from '../../src/foundation/log.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { continueRecord } from './fixtures/records.ts'
import { LinkProxy } from './link-proxy.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer, type ServerOptions } from './restartable-server.ts'
import { fillStore, storedEnds } from './stored-names.ts'
import { token, useOf } from './test-token.ts'

const driver = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))

type LeftTask = ComputeTask<string>

/** Resolves when the session's driver has sent as many beats from now on. */
async function untilBeats(url: string, count: number): Promise<void> {
  const broker = await connectToNats({ servers: [url], token, name: 'reader', log: processLog })
  let beats = 0
  broker.subscribe(sessionSubjects(useOf('returning')).heartbeat, () => void beats++)
  await eventually(() => expect(beats).toBeGreaterThanOrEqual(count))
  await broker.close()
}

/** Tasks with large values that agents have ended while their driver was killed. */
class LeftValues {
  readonly server: RestartableServer
  /** Warnings of the restarted driver. */
  readonly warnings: string[] = []
  readonly valueLength: number

  static async start(valueLength: number, options: ServerOptions = {}): Promise<LeftValues> {
    const server = new RestartableServer(await freePort(), options)
    await server.start()
    return new LeftValues(server, valueLength)
  }

  private constructor(server: RestartableServer, valueLength: number) {
    this.server = server
    this.valueLength = valueLength
  }

  lines(name: string): string[] {
    try {
      return readFileSync(join(this.server.folder, name), 'utf8').trim().split('\n').toSorted()
    } catch {
      return []
    }
  }

  /** A driver is killed while these tasks run, and then they return. */
  async runAndKill(count: number): Promise<string[]> {
    const { server, valueLength } = this
    const given = JSON.stringify({ count, valueLength, backend: { ownerTtlSeconds: 600 } })
    const killed = startProgram(driver, [server.url, server.folder, given])
    onTestFinished(() => void killed.child.kill('SIGKILL'))
    await eventually(() => expect(this.lines('begun')).toHaveLength(count))
    killed.child.kill('SIGKILL')
    await killed.ended
    writeFileSync(join(server.folder, 'go'), '')
    await eventually(() => expect(this.lines('returned')).toHaveLength(count))
    return this.lines('begun')
  }

  /** The driver returns with its record. */
  async session(): Promise<Session> {
    const servers = this.server.url
    const log = { warn: (code: string) => void this.warnings.push(code) }
    const backend = await ClusterBackend.create({ servers, token, ownerTtlSeconds: 600, log })
    const session = new Session([backend], { id: 'returning' })
    onTestFinished(() => session.close())
    await continueRecord(session, this.server.folder)
    return session
  }

  task(uid: string): LeftTask {
    const args = [this.server.folder, uid, this.valueLength] as const
    return new ComputeTask({ uid, function: heldWork, args })
  }

  async loseStore(): Promise<void> {
    await this.server.kill()
    rmSync(join(this.server.folder, 'store'), { recursive: true, force: true })
  }
}

describe('ends that agents have for a driver that was killed', () => {
  it('results for a killed driver are awaited if the broker lost them', async () => {
    const left = await LeftValues.start(500_000)
    const { server } = left
    const link = await LinkProxy.start(server.url)
    const names = ['first', 'second']
    for (const name of names)
      await startAgentHere({ url: link.url, folder: server.folder }, { name, cores: 2 })
    const uids = await left.runAndKill(4)
    await eventually(async () => expect(await storedEnds(server.url)).toBe(4))
    await left.loseStore()
    link.slowDown(500_000)
    await server.start()
    await eventually(async () => {
      const { agents } = await findAgents({ servers: server.url, token })
      expect(agents.map(({ name }) => name).toSorted()).toEqual(names)
    })
    const session = await left.session()
    const tasks = uids.map((uid) => left.task(uid))
    await session.submitTasks(tasks)
    const values = await Promise.all(tasks)
    expect(values.map(({ length }) => length)).toEqual(uids.map(() => left.valueLength))
    expect(left.lines('begun')).toEqual(uids)
    // Agents sign for the lost run until they learn of the next one.
    expect(left.warnings).not.toContain('MessageRefused')
  })

  it('results for a killed driver are awaited while the broker has no room', async () => {
    const left = await LeftValues.start(1_200_000, { storeLimit: '2MB' })
    await fillStore(left.server.url, 1_400_000)
    const warnings: string[] = []
    const log = { warn: (code: string) => void warnings.push(code) }
    await startAgentHere(left.server, { name: 'first', cores: 4, log })
    const uids = await left.runAndKill(4)
    await eventually(() => expect(warnings).toContain('EndsNotStored'))
    await startAgentHere(left.server, { name: 'second', cores: 8 })
    const session = await left.session()
    const tasks = uids.map((uid) => left.task(uid))
    const other = left.task('other')
    await session.submitTasks([...tasks, other])
    await eventually(() => expect(left.lines('begun')).toContain('other'))
    left.server.configure({ storeLimit: '900MB' })
    await left.server.kill()
    await left.server.start()
    const values = await Promise.all([...tasks, other])
    expect(values.map(({ length }) => length)).toEqual(values.map(() => left.valueLength))
    expect(left.lines('begun')).toEqual(['other', ...uids])
  })

  it('results for a killed driver are kept until it has their values', async () => {
    const left = await LeftValues.start(500_000)
    const { server } = left
    await startAgentHere(server, { name: 'only', cores: 2 })
    const uids = await left.runAndKill(2)
    await eventually(async () => expect(await storedEnds(server.url)).toBe(2))
    const session = await left.session()
    const [first, second] = uids.map((uid) => left.task(uid)) as [LeftTask, LeftTask]
    await session.submitTasks([first])
    expect(await first).toHaveLength(left.valueLength)
    // Its heartbeats tell agents which results it has recorded.
    await untilBeats(server.url, 3)
    await left.loseStore()
    await server.start()
    await session.submitTasks([second])
    expect(await second).toHaveLength(left.valueLength)
    expect(left.lines('begun')).toEqual(uids)
  })
})
