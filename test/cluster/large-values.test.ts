import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StoreFullError } from '../../src/cluster/broker/broker.ts'
import { connectToNats } from '../../src/cluster/broker/nats.ts'
import { StoredObjects } from '../../src/cluster/broker/stored-objects.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import type { BackendError } from '../../src/foundation/errors.ts'
import { processLog } from '../../src/foundation/log.ts'
import { Session } from '../../src/session/session.ts'
import { echo } from '../../src/testing/contract-tasks.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere } from './agents.ts'
import { lengthOfFile } from './fixtures/bundled-task.ts'
import { heldWork, large } from './fixtures/cluster-tasks.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { fillStore, storedNames, storedObjects } from './stored-names.ts'
import { token } from './test-token.ts'

const lines = (file: string): string[] => readFileSync(file, 'utf8').trim().split('\n')

async function connect(
  { url }: RestartableServer,
  options: Partial<ClusterBackendOptions> = {},
): Promise<Session> {
  const backend = await ClusterBackend.create({ servers: url, token, ...options })
  const session = new Session([backend])
  onTestFinished(() => session.close())
  return session
}

/** More than a message of the cluster has, in several pieces. */
const largeBytes = 400_000

const largeTasks = (count: number): ComputeTask<Uint8Array>[] =>
  Array.from({ length: count }, (_, index) => {
    return new ComputeTask({ function: large, args: [new Uint8Array(largeBytes).fill(index)] })
  })

async function expectValues(tasks: readonly ComputeTask<Uint8Array>[]): Promise<void> {
  const values = await Promise.all(tasks)
  expect(values.map((value) => [value.length, value.at(-1)])).toEqual(
    tasks.map((_, index) => [largeBytes, index + 1]),
  )
}

describe('values that are larger than a message', () => {
  it('large values arrive when the broker is killed during their transfer', async () => {
    const server = new RestartableServer(await freePort())
    await server.start()
    await startAgentHere(server, { name: 'only', cores: 2 })
    const session = await connect(server)
    const tasks = largeTasks(12)
    await session.submitTasks(tasks)
    for (const enough of [0, 2, 4, 6]) {
      await eventually(() => {
        const done = tasks.filter(({ state }) => state === 'DONE')
        expect(done.length).toBeGreaterThanOrEqual(enough)
      })
      await server.kill()
      await server.start()
    }
    await expectValues(tasks)
    await session.close()
    expect(await storedNames(server.url)).toEqual([])
  })

  it('large values arrive when they are sent and returned while the broker is down', async () => {
    const server = new RestartableServer(await freePort())
    await server.start()
    await startAgentHere(server, { name: 'only' })
    const session = await connect(server)
    const args = [server.folder, 'held', 500_000] as const
    const held = new ComputeTask({ function: heldWork, args: [...args] })
    await session.submitTasks([held])
    await eventually(() => expect(lines(join(server.folder, 'begun'))).toHaveLength(1))
    await server.kill()
    const sent = largeTasks(2)
    await session.submitTasks(sent)
    writeFileSync(join(server.folder, 'go'), '')
    await eventually(() => expect(lines(join(server.folder, 'returned'))).toHaveLength(1))
    await server.start()
    expect(await held).toHaveLength(500_000)
    await expectValues(sent)
    expect(lines(join(server.folder, 'begun'))).toHaveLength(1)
  })
})

describe('a broker that does not take what has to be stored', () => {
  it.each(['modules', 'arguments'])(
    'a broker that refuses to store a value is awaited, unless the task is canceled: %s',
    async (what) => {
      const server = new RestartableServer(await freePort(), { storeLimit: '2MB' })
      await server.start()
      await startAgentHere(server, { name: 'only', cores: 3 })
      const warnings: string[] = []
      const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
      const modules = what === 'modules' ? 'bundle' : 'shared'
      const session = await connect(server, { modules, log })
      const [task, ...canceled] = ['sent', 'canceled', 'canceled-too'].map((uid) =>
        what === 'modules'
          ? new ComputeTask({ uid, function: lengthOfFile })
          : new ComputeTask({ uid, function: echo, args: ['x'.repeat(largeBytes)] }),
      ) as [ComputeTask<unknown>, ...ComputeTask<unknown>[]]
      // The driver has noted by then that it uses the agent.
      const first = new ComputeTask({ executable: '/bin/true' })
      await session.submitTasks([first])
      await first
      const makeRoom = await fillStore(server.url, Infinity)
      await session.submitTasks([task, ...canceled])
      const title = what === 'modules' ? 'module .*bundled-task.ts' : 'the input of task sent'
      const text = `^ObjectNotStored: backend "cluster" cannot store ${title} \\([0-9]+ bytes\\)`
      const told = new RegExp(
        `${text} at ${server.url} now: insufficient resources; it is sent again$`,
      )
      await eventually(() => expect(warnings.some((line) => told.test(line))).toBe(true))
      // While there is no room.
      for (const one of canceled) session.cancel(one, 'not needed')
      await session.waitTasks(canceled)
      expect(canceled.map(({ state }) => state)).toEqual(['CANCELED', 'CANCELED'])
      expect(task.state).not.toBe('FAILED')
      await makeRoom()
      await session.waitTasks([task])
      expect(task.error).toBeFalsy()
    },
  )

  it('a broker gets nothing of a canceled task, and has its room again', async () => {
    const server = new RestartableServer(await freePort(), { storeLimit: '2MB' })
    await server.start()
    await startAgentHere(server, { name: 'only' })
    const session = await connect(server)
    // Six of them are more than the store takes.
    const args = ['x'.repeat(largeBytes)] as const
    for (const round of [1, 2, 3, 4, 5, 6]) {
      const canceled = new ComputeTask({ uid: `canceled-${round}`, function: echo, args })
      await session.submitTasks([canceled])
      session.cancel(canceled, 'not needed')
      await session.waitTasks([canceled])
      const sent = new ComputeTask({ uid: `sent-${round}`, function: echo, args })
      await session.submitTasks([sent])
      expect(await sent).toHaveLength(largeBytes)
    }
    await eventually(async () => expect(await storedObjects(server.url)).toEqual([]))
  })
})

it('a task whose value waits for room in the broker ends at once when it is canceled', async () => {
  const server = new RestartableServer(await freePort(), { storeLimit: '2MB' })
  await server.start()
  await startAgentHere(server, { name: 'only' })
  const session = await connect(server, { agentTimeoutSeconds: 3600 })
  const telemetry = await session.startTelemetry()
  const throttled = new Promise<void>((resolve) => {
    telemetry.subscribe(({ event_type: type }) => {
      if (type === 'tutti.BackendThrottled') resolve()
    })
  })
  const makeRoom = await fillStore(server.url, 1_700_000)
  writeFileSync(join(server.folder, 'go'), '')
  const args = [server.folder, 'waiting', 800_000] as const
  const task = new ComputeTask({ function: heldWork, args })
  await session.submitTasks([task])
  await throttled
  expect(lines(join(server.folder, 'returned'))).toEqual(['waiting'])
  session.cancel(task, 'not needed')
  await session.waitTasks([task])
  expect(task.state).toBe('CANCELED')
  await makeRoom()
  const next = new ComputeTask({ function: heldWork, args: [server.folder, 'next', 800_000] })
  await session.submitTasks([next])
  expect(await next).toHaveLength(800_000)
  await eventually(async () => expect(await storedObjects(server.url)).toEqual([]))
})

describe('a store that is smaller than a value', () => {
  it('a value over the limit of an account is refused', async () => {
    const users = 'users: [{ user: "ann", password: "a long password" }]'
    const authorization = `accounts { one { jetstream { max_file: 2MB }, ${users} } }`
    const server = new RestartableServer(await freePort(), { authorization })
    await server.start()
    const access = { user: 'ann', password: 'a long password', name: 'test', log: processLog }
    const broker = await connectToNats({ servers: [server.url], ...access })
    onTestFinished(() => broker.close())
    await broker.store.openStream('stream', {
      subjects: ['objects.>'],
      maxAgeSeconds: 60,
      label: 'test',
    })
    const put = (bytes: number): Promise<unknown> =>
      broker.store
        .putObject('objects.one', new Uint8Array(bytes), new AbortController().signal)
        .catch((error: unknown) => error)
    const limitBytes = 2 * 1024 * 1024
    expect(await put(1_000_000)).toBe(undefined)
    const { heldBytes } = await broker.store.usage()
    const refused = (await put(1_500_000)) as StoreFullError
    expect(refused).toBeInstanceOf(StoreFullError)
    expect(refused).toMatchObject({ limitBytes })
    // The bytes in the store that do not belong to the object.
    expect(refused.heldBytes - refused.storedBytes).toBe(heldBytes)
    const objects = new StoredObjects({
      owner: 'the test',
      broker,
      clock: systemClock,
      stream: 'stream',
      objects: 'objects',
      refusalTimeoutMs: () => Infinity,
      openStream: () => Promise.resolve(),
      makeRoom() {},
      onProblem() {},
    })
    const data = new Uint8Array(4_000_000)
    const store = `the store of the broker at ${server.url} is limited to ${limitBytes} bytes`
    await expect(objects.put({ prefix: 'two', title: 'it', data })).rejects.toMatchObject({
      code: 'StoreTooSmallError',
      message: `the test cannot store it (4000000 bytes): ${store}`,
    })
  })

  it.each([
    ['much', 2_000_000],
    ['a little', 1_061_000],
  ])(
    'a store limited by %s fails the task, and names the limit and the size',
    async (_, length) => {
      const server = new RestartableServer(await freePort(), { storeLimit: '1MB' })
      await server.start()
      await startAgentHere(server, { name: 'only' })
      const session = await connect(server, { agentTimeoutSeconds: 2 })
      const text = 'x'.repeat(length)
      const sent = new ComputeTask({ uid: 'sent', function: echo, args: [text], retries: 3 })
      const args = [server.folder, 'returned', length] as const
      const returned = new ComputeTask({ uid: 'returned', function: heldWork, args: [...args] })
      writeFileSync(join(server.folder, 'go'), '')
      await session.submitTasks([sent, returned])
      await session.waitTasks([sent, returned])
      const causes = [sent, returned].map(({ error }) => error?.cause as BackendError)
      expect(causes.map(({ code }) => code)).toEqual(['StoreTooSmallError', 'StoreTooSmallError'])
      const room = 'has had room for at most [0-9]+ bytes for the last [0-9]+ s'
      const store = `the store of the broker at ${server.url} ${room}`
      const sizes = '\\([0-9]{7} bytes\\)'
      expect(causes[0]?.message).toMatch(
        new RegExp(`^backend "cluster" cannot store the input of task sent ${sizes}: ${store}$`),
      )
      expect(causes[1]?.message).toMatch(
        new RegExp(`^agent "only" cannot store the value of task returned ${sizes}: ${store}$`),
      )
      // Values that fit are stored as before.
      const fits = new ComputeTask({ function: echo, args: ['x'.repeat(largeBytes)] })
      await session.submitTasks([fits])
      expect(await fits).toHaveLength(largeBytes)
      await eventually(async () => expect(await storedObjects(server.url)).toEqual([]))
    },
  )
})

it('values wait while another account of the server holds the room for them', async () => {
  const password = 'a long password'
  const account = (user: string): string =>
    `${user} { jetstream: enabled, users: [{ user: ${user}, password: "${password}" }] }`
  const server = new RestartableServer(await freePort(), {
    authorization: `accounts { ${account('own')}, ${account('other')} }`,
    storeLimit: '2MB',
  })
  await server.start()
  const passwordFile = join(server.folder, 'password')
  writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 })
  const access = { user: 'own', passwordFile }
  await startAgentHere(server, { name: 'only', cores: 2, ...access })
  const session = await connect(server, { ...access, agentTimeoutSeconds: 3600 })
  const telemetry = await session.startTelemetry()
  const throttled = new Promise<void>((resolve) => {
    telemetry.subscribe(({ event_type: type }) => {
      if (type === 'tutti.BackendThrottled') resolve()
    })
  })
  const makeRoom = await fillStore(server.url, 1_700_000, { user: 'other', pass: password })
  writeFileSync(join(server.folder, 'go'), '')
  const tasks = ['first', 'second'].map((id) => {
    return new ComputeTask({ function: heldWork, args: [server.folder, id, 800_000] })
  })
  await session.submitTasks(tasks)
  await Promise.race([throttled, session.waitTasks(tasks)])
  expect(tasks.map(({ error }) => error ?? null)).toEqual([null, null])
  await makeRoom()
  expect((await Promise.all(tasks)).map(({ length }) => length)).toEqual([800_000, 800_000])
})

it.each([
  ['one agent', 1],
  ['two agents', 2],
])('values of which only one fits into the store arrive one by one: %s', async (_, agents) => {
  const server = new RestartableServer(await freePort())
  const store = `store_dir: "${server.folder}/store"`
  server.configure({ jetstream: `jetstream { ${store}, max_file_store: 2MB }\n` })
  await server.start()
  for (let agent = 1; agent <= agents; agent++) {
    await startAgentHere(server, { name: `agent-${agent}`, cores: 2 / agents })
  }
  const session = await connect(server)
  const tasks = ['first', 'second'].map((id) => {
    return new ComputeTask({ function: heldWork, args: [server.folder, id, 1_400_000] })
  })
  await session.submitTasks(tasks)
  await eventually(() => expect(lines(join(server.folder, 'begun'))).toHaveLength(2))
  writeFileSync(join(server.folder, 'go'), '')
  const values = await Promise.all(tasks)
  expect(values.map(({ length }) => length)).toEqual([1_400_000, 1_400_000])
  expect(lines(join(server.folder, 'begun'))).toHaveLength(2)
  await eventually(async () => expect(await storedObjects(server.url)).toEqual([]))
})

it('a bundle that the broker has lost is stored again for the next node', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentHere(server, { name: 'first', labels: { node: '1' } })
  const session = await connect(server, { modules: 'bundle' })
  const first = new ComputeTask({ function: lengthOfFile, resources: { labels: { node: '1' } } })
  await session.submitTasks([first])
  const length = await first
  await server.kill()
  rmSync(join(server.folder, 'store'), { recursive: true, force: true })
  await server.start()
  await startAgentHere(server, { name: 'second', labels: { node: '2' } })
  const second = new ComputeTask({ function: lengthOfFile, resources: { labels: { node: '2' } } })
  // It is refused until the driver has heard of that node.
  await eventually(() => session.submitTasks([second]))
  expect(await second).toBe(length)
})
