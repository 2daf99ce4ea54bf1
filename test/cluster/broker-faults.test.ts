import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect as openSocket } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findAgents } from '../../src/cluster/agent-list.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere } from './agents.ts'
import { heldWork, large, work } from './fixtures/cluster-tasks.ts'
import type { KeptTask } from './fixtures/kept-tasks.ts'
import { echo } from '../../src/testing/contract-tasks.ts'
import { LinkProxy } from './link-proxy.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { fillStore, storedEnds, storedNames } from './stored-names.ts'
import { token } from './test-token.ts'
import { endReturned } from './returned-tasks.ts'

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

describe('a broker that is killed and started again', () => {
  it.each(['with its store', 'with an empty store'])(
    'a broker that is killed and restarted loses no task and begins none twice: %s',
    async (how) => {
      const server = new RestartableServer(await freePort())
      await server.start()
      await startAgentHere(server, { name: 'first' })
      await startAgentHere(server, { name: 'second' })
      const backend = await ClusterBackend.create({ servers: server.url, token })
      const session = new Session([backend])
      onTestFinished(() => session.close())
      const telemetry = await session.startTelemetry()
      const lost: string[] = []
      telemetry.subscribe(({ event_type }) => {
        if (event_type === 'tutti.NodeLost') lost.push(event_type)
      })
      const begun = join(server.folder, 'begun')
      const tasks = Array.from({ length: 60 }, (_, index) => {
        const uid = `task-${index}`
        return new ComputeTask({ uid, function: work, args: [begun, uid, 100] })
      })
      await session.submitTasks(tasks)
      for (const enough of [10, 25]) {
        await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(enough))
        await server.kill()
        if (how === 'with an empty store') {
          rmSync(join(server.folder, 'store'), { recursive: true, force: true })
        }
        await server.start()
      }
      await session.waitTasks(tasks)
      expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
      expect(lines(begun)).toHaveLength(60)
      expect(lost).toEqual([])
      await session.close()
      expect(await storedNames(server.url)).toEqual([])
    },
  )
})

it('a session that is closed while its connection is down leaves nothing', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentHere(server, { name: 'first' })
  const link = await LinkProxy.start(server.url)
  const backend = await ClusterBackend.create({ servers: link.url, token })
  const session = new Session([backend])
  onTestFinished(() => session.close())
  const begun = join(server.folder, 'begun')
  const task = new ComputeTask({ uid: 'task', function: work, args: [begun, 'task', 3_600_000] })
  await session.submitTasks([task])
  await eventually(() => expect(lines(begun)).toHaveLength(1))
  link.cut()
  const closed = session.close()
  // Messages sent meanwhile are lost.
  await new Promise((resolve) => setImmediate(resolve))
  link.mend()
  await closed
  const { agents } = await findAgents({ servers: server.url, token })
  expect(agents).toMatchObject([{ name: 'first', sessions: 0 }])
  expect(await storedNames(server.url)).toEqual([])
})

it.each([
  ['in a message', 10],
  ['too large for a message', 500_000],
])('an end that the server acknowledged and lost is sent again: %s', async (_, length) => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentHere(server, { name: 'only' })
  const link = await LinkProxy.start(server.url)
  const warnings: string[] = []
  const log = { warn: (code: string) => void warnings.push(code) }
  const session = new Session([await ClusterBackend.create({ servers: link.url, token, log })])
  onTestFinished(() => session.close())
  const { folder } = server
  const task = new ComputeTask({ function: heldWork, args: [folder, 'held', length] })
  await session.submitTasks([task])
  await eventually(() => expect(lines(join(folder, 'begun'))).toEqual(['held']))
  link.cut()
  writeFileSync(join(folder, 'go'), '')
  await eventually(async () => expect(await storedEnds(server.url)).toBe(1))
  await server.kill()
  rmSync(join(folder, 'store'), { recursive: true, force: true })
  await server.start()
  link.mend()
  expect(await task).toHaveLength(length)
  expect(lines(join(folder, 'begun'))).toEqual(['held'])
  await eventually(() => expect(warnings).toContain('StoreLost'))
})

it('a server whose `max_payload` is too small is refused, with both numbers', async () => {
  const server = new RestartableServer(await freePort(), { settings: 'max_payload: 4095' })
  await server.start()
  await expect(ClusterBackend.create({ servers: server.url, token })).rejects.toMatchObject({
    code: 'BrokerUnavailableError',
    message: expect.stringContaining('`max_payload` is 4095 bytes, and at least 4096') as string,
    hint: expect.stringContaining('Raise `max_payload`') as string,
  })
})

it('cancels of many tasks stay below the limit of the broker', async () => {
  const server = new RestartableServer(await freePort(), { settings: 'max_payload: 4096' })
  await server.start()
  await startAgentHere(server, { name: 'only', cores: 12 })
  const session = new Session([await ClusterBackend.create({ servers: server.url, token })])
  onTestFinished(() => session.close())
  const tasks = Array.from({ length: 60 }, (_, index) => {
    const uid = `${index}-`.padEnd(128, 'x')
    return new ComputeTask({ uid, executable: '/bin/sleep', arguments: ['1000'] })
  })
  await session.submitTasks(tasks)
  await eventually(() => {
    expect(tasks.filter(({ state }) => state === 'RUNNING')).toHaveLength(12)
  })
  for (const task of tasks) session.cancel(task, 'not needed')
  await session.waitTasks(tasks)
  expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'CANCELED'))
})

it('an agent reports its held attempts in messages below the limit of the broker', async () => {
  const server = new RestartableServer(await freePort(), { settings: 'max_payload: 4096' })
  await server.start()
  const { folder, url } = server
  await startAgentHere(server, { name: 'only', cores: 30 })
  const tasks = Array.from({ length: 30 }, (_, index): KeptTask => {
    return { uid: `${index}-`.padEnd(120, 'x'), kind: 'program' }
  })
  const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))
  const driver = startProgram(program, [url, folder, JSON.stringify(tasks)])
  onTestFinished(() => void driver.child.kill('SIGKILL'))
  await eventually(() => expect(lines(join(folder, 'started'))).toHaveLength(30))
  driver.child.kill('SIGKILL')
  await driver.ended
  const session = new Session([await ClusterBackend.create({ servers: url, token })], {
    id: 'kept',
  })
  onTestFinished(() => session.close())
  await endReturned(session, folder, tasks)
  expect(lines(join(folder, 'begun'))).toHaveLength(30)
})

it('messages stay below the limit of the broker; larger values are stored', async () => {
  const server = new RestartableServer(await freePort(), { settings: 'max_payload: 32768' })
  await server.start()
  await startAgentHere(server, { name: 'only' })
  const session = new Session([await ClusterBackend.create({ servers: server.url, token })])
  onTestFinished(() => session.close())
  const bytes = new Uint8Array(300_000).fill(1)
  const big = new ComputeTask({ function: large, args: [bytes] })
  const many = Array.from({ length: 300 }, (_, index) => {
    return new ComputeTask({ function: echo, args: [`${index} ${'x'.repeat(100)}`] })
  })
  await session.submitTasks([big, ...many])
  expect(await big).toEqual(bytes.map((byte) => byte + 1))
  const values = await Promise.all(many)
  expect(values.map((value) => Number.parseInt(String(value)))).toEqual(many.map((_, at) => at))
})

it('a session that finds the store of the broker full waits for room, and is told', async () => {
  const server = new RestartableServer(await freePort(), { storeLimit: '1MB' })
  await server.start()
  await startAgentHere(server, { name: 'only' })
  const makeRoom = await fillStore(server.url, Infinity)
  const connect = (): Promise<ClusterBackend> =>
    ClusterBackend.create({ servers: server.url, token, agentTimeoutSeconds: 0.1 })
  const backends = [await connect(), await connect()]
  const session = new Session(backends.slice(1))
  onTestFinished(() => session.close())
  const throttled = Promise.withResolvers<string>()
  const telemetry = await session.startTelemetry()
  telemetry.subscribe((event) => {
    if (event.event_type === 'tutti.BackendThrottled') throttled.resolve(event.reason)
  })
  const task = new ComputeTask({ function: echo, args: ['told'] })
  await session.submitTasks([task])
  expect(await throttled.promise).toBe('the store of the broker is full: insufficient resources')
  const names = await storedNames(server.url)
  const closed = new Session(backends.slice(0, 1))
  await closed.startTelemetry()
  await closed.submitTasks([new ComputeTask({ function: echo, args: ['never'] })])
  await eventually(async () => expect(await storedNames(server.url)).not.toEqual(names))
  await closed.close()
  expect(await storedNames(server.url)).toEqual(names)
  await makeRoom()
  expect(await task).toBe('told')
})

describe('a broker that cannot be used', () => {
  it('a missing server is named with the cause', async () => {
    const port = await freePort()
    await expect(
      ClusterBackend.create({ servers: `nats://127.0.0.1:${port}`, token }),
    ).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringContaining(`127.0.0.1:${port}`) as string,
    })
  })

  it('a broker that does not answer is given up, and keeps no process alive', async () => {
    // Connections to a process that does not accept them stay half open once its queue is full.
    const listen = `require('net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 },
      function () { console.log(this.address().port) })`
    const silent = spawn(process.execPath, ['-e', listen], { stdio: ['ignore', 'pipe', 'inherit'] })
    onTestFinished(() => void silent.kill('SIGKILL'))
    const [text] = (await once(silent.stdout, 'data')) as [Buffer]
    const port = Number(text.toString())
    silent.kill('SIGSTOP')
    const sockets = Array.from({ length: 4 }, () => openSocket(port, '127.0.0.1'))
    onTestFinished(() => sockets.forEach((socket) => socket.destroy()))
    await once(sockets[0] ?? silent, 'connect')
    const open = (): readonly string[] =>
      process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP'))
    const before = open()
    await expect(
      ClusterBackend.create({ servers: `nats://127.0.0.1:${port}`, token }),
    ).rejects.toMatchObject({
      code: 'BrokerUnavailableError',
      message: expect.stringContaining('it does not answer') as string,
    })
    await eventually(() => expect(open()).toEqual(before))
  })

  it('a broker with another token is named', async () => {
    const server = new RestartableServer(await freePort())
    await server.start()
    await expect(
      ClusterBackend.create({ servers: server.url, token: 'wrong token' }),
    ).rejects.toMatchObject({ code: 'BrokerUnavailableError' })
  })
})
