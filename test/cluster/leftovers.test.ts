import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { WorkerLostError } from '../../src/foundation/errors.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sessionElsewhere, sharedTestCluster, startAgentHere } from './agents.ts'
import { large, largeWork, work } from './fixtures/cluster-tasks.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { processesWith } from './processes.ts'
import { fillStore, namesOfSession, storedNames } from './stored-names.ts'
import { token } from './test-token.ts'

/** Sessions are closed with their test, and agents end. */
const sharedServer = sharedTestCluster()

const program = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))
const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

describe('what a session leaves in the broker', () => {
  it('a closed session leaves nothing in the broker', async () => {
    const cluster = await sharedServer()
    const stopped = await cluster.agent('stopped', '--cores', '1')
    await startAgentHere(cluster, { name: 'other' })
    const backend = await cluster.connect({ lossSeconds: 1, ownerTtlSeconds: 1 })
    const session = new Session([backend], { id: 'closed' })
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const value = new Uint8Array(600_000)
    const tasks = ['one', 'two'].map(
      (uid) => new ComputeTask({ uid, function: work, args: [begun, uid, 2000], retries: 2 }),
    )
    await session.submitTasks([new ComputeTask({ function: large, args: [value] }), ...tasks])
    await eventually(() => expect(new Set(lines(begun))).toEqual(new Set(['one', 'two'])))
    stopped.child.kill('SIGSTOP')
    await session.waitTasks(tasks)
    await session.close()
    expect(await storedNames(cluster.server.url)).toEqual([])
    stopped.child.kill('SIGCONT')
    // It ends its task late, finds no stream, and leaves when it is asked.
    stopped.child.kill('SIGTERM')
    expect((await stopped.ended).code).toBe(0)
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it('leftovers of a dead session are removed by the next driver after they expire', async () => {
    const cluster = await sharedServer()
    const agent = await startAgentHere(cluster, { name: 'only' })
    const backend = { ownerTtlSeconds: 1, resultTtlSeconds: 1 }
    const given = JSON.stringify({ count: 3, taskMs: 60_000, backend })
    const driver = startProgram(program, [cluster.server.url, cluster.folder, given])
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    await eventually(() => expect(lines(join(cluster.folder, 'begun'))).toContain('task-0'))
    driver.child.kill('SIGKILL')
    // The agent ends the one-minute task: it has no session and leaves immediately.
    await eventually(async () => {
      const agents = await cluster.agents()
      expect(agents.map(({ sessions }) => sessions)).toEqual([0])
    })
    agent.drain()
    expect(await agent.left).toBe(0)
    await eventually(async () => {
      const next = await cluster.connect()
      onTestFinished(() => next.close())
      expect(await namesOfSession(cluster.server.url, 'returning')).toEqual([])
    })
  })
})

describe('what an agent that was killed leaves in its work folder', () => {
  it('the work folder of a dead agent is removed by the next one', async () => {
    const cluster = await sharedServer()
    const workDir = join(cluster.folder, 'work')
    const options = ['--cores', '1', '--work-dir', workDir]
    const killed = await cluster.agent('killed', ...options, '--label', 'on=killed')
    await startAgentHere(cluster, { name: 'living', workDir, labels: { on: 'living' } })
    const backend = await cluster.connect()
    const session = sessionElsewhere(backend)
    onTestFinished(() => session.close())
    await eventually(() => expect(backend.nodes).toHaveLength(2))
    const tasks = ['killed', 'living'].map((on) => {
      return new ComputeTask({ executable: '/bin/true', resources: { labels: { on } } })
    })
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    expect(readdirSync(workDir)).toHaveLength(2)
    expect(readdirSync(workDir).flatMap((name) => readdirSync(join(workDir, name)))).toHaveLength(2)
    const before = readdirSync(workDir)
    killed.child.kill('SIGKILL')
    await killed.ended
    // The id of the killed process as that of another one, which lives.
    const left = before.find((name) => name.startsWith(`agent-${killed.child.pid}-`)) ?? ''
    const reused = left.replace(`agent-${killed.child.pid}-`, `agent-${process.pid}-`)
    cpSync(join(workDir, left), join(workDir, reused), { recursive: true })
    await startAgentHere(cluster, { name: 'next', workDir })
    const after = readdirSync(workDir)
    expect(after).not.toContain(left)
    expect(after).not.toContain(reused)
    expect(after.filter((name) => before.includes(name))).toHaveLength(1)
    expect(after).toHaveLength(2)
  })
})

describe('an agent that is ended by a second signal', () => {
  it('an agent that a second signal ends leaves no folder, bundle or process', async () => {
    const cluster = await sharedServer()
    const { folder, server, tokenFile } = cluster
    const [workDir, mark] = [join(folder, 'work'), `TUTTI_TEST_MARK=${folder}`]
    const connection = ['--connect', server.url, '--token-file', tokenFile]
    const given = ['agent', ...connection, '--name', 'ended', '--cores', '2', '--work-dir', workDir]
    const agent = startCommand(given, { TUTTI_TEST_MARK: folder })
    onTestFinished(() => void agent.child.kill('SIGKILL'))
    await agent.seen('is connected')
    const session = new Session([await cluster.connect({ modules: 'bundle' })])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const left: unknown[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.NodeDrained') left.push(event)
      if (event.event_type === 'tutti.NodeLost') left.push([event.reason, event.tasks.toSorted()])
    })
    const held = [join(folder, 'begun'), 'held', 1_000_000] as const
    const tasks = [
      new ComputeTask({ uid: 'program', executable: '/bin/sleep', arguments: ['1000'] }),
      new ComputeTask({ uid: 'function', function: work, args: [...held] }),
    ]
    await session.submitTasks(tasks)
    await eventually(() => {
      expect(tasks.map(({ state }) => state)).toEqual(['RUNNING', 'RUNNING'])
    })
    expect(readdirSync(workDir)).toHaveLength(1)
    agent.child.kill('SIGTERM')
    await agent.seen('finishing the tasks that run')
    agent.child.kill('SIGTERM')
    expect((await agent.ended).code).toBe(143)
    expect(readdirSync(workDir)).toEqual([])
    expect(processesWith(mark)).toEqual([])
    await session.waitTasks(tasks)
    for (const { error } of tasks) {
      expect(error?.cause).toBeInstanceOf(WorkerLostError)
      expect(error?.cause).toMatchObject({ code: 'NodeLostError' })
    }
    await eventually(() => expect(left).toHaveLength(1))
    expect(left).toEqual([['agent closed', ['function', 'program']]])
  })

  it('an agent that a second signal ends before it connected leaves no folder', async () => {
    const cluster = await sharedServer()
    const workDir = join(cluster.folder, 'work')
    const connection = ['--connect', cluster.server.url, '--token-file', cluster.tokenFile]
    const agent = startCommand(['agent', ...connection, '--name', 'ended', '--work-dir', workDir])
    onTestFinished(() => void agent.child.kill('SIGKILL'))
    await eventually(() => expect(readdirSync(workDir)).toHaveLength(1))
    for (let count = 0; count < 3; count++) agent.child.kill('SIGTERM')
    await agent.ended
    expect(readdirSync(workDir)).toEqual([])
  })
})

it('nothing is left of a local cluster whose driver was killed, with a running task', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const files = join(folder, 'files')
  mkdirSync(files)
  const local = fileURLToPath(new URL('fixtures/local-driver.ts', import.meta.url))
  const begun = join(folder, 'begun')
  const driver = startProgram(local, [begun], { TMPDIR: files })
  onTestFinished(() => void driver.child.kill('SIGKILL'))
  await eventually(() => expect(lines(begun)).toHaveLength(1))
  expect(processesWith(`TMPDIR=${files}`)).not.toEqual([])
  driver.child.kill('SIGKILL')
  await driver.ended
  await eventually(() => expect(processesWith(`TMPDIR=${files}`)).toEqual([]))
  // The last one that ends is the guard of the server.
  await eventually(() => expect(readdirSync(files)).toEqual([]))
})

describe('a broker whose disk is full', () => {
  it('a broker whose disk is full throttles the session and loses nothing', async () => {
    const server = new RestartableServer(await freePort())
    const store = `store_dir: "${server.folder}/store"`
    server.configure({ jetstream: `jetstream { ${store}, max_file_store: 2MB }\n` })
    await server.start()
    await startAgentHere(server, { name: 'only', cores: 2 })
    const backend = await ClusterBackend.create({ servers: server.url, token })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const first = new ComputeTask({ function: large, args: [new Uint8Array(10)] })
    await session.submitTasks([first])
    await first
    await fillStore(server.url, Infinity)
    const throttled: string[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.BackendThrottled') throttled.push(event.reason)
    })
    const tasks = Array.from({ length: 40 }, () => {
      return new ComputeTask({ function: large, args: [new Uint8Array(10_000)] })
    })
    await session.submitTasks(tasks)
    await eventually(() => expect(throttled.join()).toContain('does not store'))
    await server.kill()
    server.configure({ jetstream: `jetstream { ${store}, max_file_store: 100MB }\n` })
    await server.start()
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
  })

  it('a broker with a full disk continues a session with results beyond its room', async () => {
    const server = new RestartableServer(await freePort(), { storeLimit: '2MB' })
    await server.start()
    const names = ['one', 'two']
    for (const name of names) {
      await startAgentHere(server, { name, labels: { is: name } })
    }
    const backend = await ClusterBackend.create({ servers: server.url, token })
    const session = new Session([backend])
    onTestFinished(() => session.close())
    await session.startTelemetry({ checkpointPath: server.folder })
    const begun = join(server.folder, 'begun')
    // Removing the stored data of the first makes room for the second.
    for (const name of names) {
      const resources = { labels: { is: name } }
      const tasks = Array.from({ length: 50 }, () => {
        return new ComputeTask({ function: largeWork, args: [begun, 60_000], resources })
      })
      await session.submitTasks(tasks)
      const values = await Promise.all(tasks)
      expect(new Set(values.map(({ length }) => length))).toEqual(new Set([60_000]))
    }
    expect(lines(begun)).toHaveLength(100)
    // The driver has to store it, and agents have the room.
    const last = new ComputeTask({ function: large, args: [new Uint8Array(600_000)] })
    await session.submitTasks([last])
    expect(await last).toHaveLength(600_000)
  })
})

it('a session that is closed before it was used leaves nothing in the broker', async () => {
  const cluster = await sharedServer()
  await startAgentHere(cluster, { name: 'only' })
  for (const wait of [false, true]) {
    const session = new Session([await cluster.connect()])
    if (wait) void session.submitTasks([new ComputeTask({ executable: '/bin/true' })])
    await session.close()
  }
  expect(await storedNames(cluster.server.url)).toEqual([])
})
