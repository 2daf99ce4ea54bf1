import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import { Session } from '../../src/session/session.ts'
import { echo } from '../../src/testing/contract-tasks.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentOf } from './agents.ts'
import { lengthOfFile } from './fixtures/bundled-task.ts'
import { heldWork, large } from './fixtures/cluster-tasks.ts'
import { freePort, RestartableServer } from './restartable-server.ts'
import { storedNames, storedObjects } from './stored-names.ts'
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

const largeTasks = (count: number): ComputeTask<Uint8Array>[] =>
  Array.from({ length: count }, (_, index) => {
    return new ComputeTask({ function: large, args: [new Uint8Array(1_000_000).fill(index)] })
  })

async function expectValues(tasks: readonly ComputeTask<Uint8Array>[]): Promise<void> {
  const values = await Promise.all(tasks)
  expect(values.map((value) => [value.length, value.at(-1)])).toEqual(
    tasks.map((_, index) => [1_000_000, index + 1]),
  )
}

describe('values that are larger than a message', () => {
  it('arrive when the broker is killed while they are on their way', async () => {
    const server = new RestartableServer(await freePort())
    await server.start()
    await startAgentOf(server.url, server.folder, 'only', '--cores', '2')
    const session = await connect(server)
    const tasks = largeTasks(20)
    await session.submitTasks(tasks)
    for (const enough of [0, 4, 8, 12]) {
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

  it('arrive when they are sent and returned while the broker is down', async () => {
    const server = new RestartableServer(await freePort())
    await server.start()
    await startAgentOf(server.url, server.folder, 'only', '--cores', '1')
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
  it.each(['modules', 'arguments'])('is waited for: %s', async (what) => {
    const server = new RestartableServer(await freePort())
    const store = `store_dir: "${server.folder}/store"`
    server.configure({ jetstream: `jetstream { ${store}, max_file_store: 100 }\n` })
    await server.start()
    await startAgentOf(server.url, server.folder, 'only', '--cores', '1')
    const warnings: string[] = []
    const log = { warn: (code: string) => void warnings.push(code) }
    const session = await connect(server, what === 'modules' ? { modules: 'bundle', log } : { log })
    const task =
      what === 'modules'
        ? new ComputeTask({ function: lengthOfFile })
        : new ComputeTask({ function: echo, args: ['x'.repeat(600_000)] })
    await session.submitTasks([task])
    await eventually(() => expect(warnings).toContain('ObjectNotStored'))
    expect(task.state).not.toBe('FAILED')
    await server.kill()
    server.configure({ jetstream: `jetstream { ${store}, max_file_store: 100MB }\n` })
    await server.start()
    await session.waitTasks([task])
    expect(task.error).toBeFalsy()
  })
})

it.each([
  ['one agent', 1],
  ['two agents', 2],
])('values of which only one fits into the store arrive one by one: %s', async (_, agents) => {
  const server = new RestartableServer(await freePort())
  const store = `store_dir: "${server.folder}/store"`
  server.configure({ jetstream: `jetstream { ${store}, max_file_store: 7MB }\n` })
  await server.start()
  const cores = String(2 / agents)
  for (let agent = 1; agent <= agents; agent++) {
    await startAgentOf(server.url, server.folder, `agent-${agent}`, '--cores', cores)
  }
  const session = await connect(server)
  const tasks = ['first', 'second'].map((id) => {
    return new ComputeTask({ function: heldWork, args: [server.folder, id, 5_000_000] })
  })
  await session.submitTasks(tasks)
  await eventually(() => expect(lines(join(server.folder, 'begun'))).toHaveLength(2))
  writeFileSync(join(server.folder, 'go'), '')
  const values = await Promise.all(tasks)
  expect(values.map(({ length }) => length)).toEqual([5_000_000, 5_000_000])
  expect(lines(join(server.folder, 'begun'))).toHaveLength(2)
  await eventually(async () => expect(await storedObjects(server.url)).toEqual([]))
})

it('a bundle that the broker has lost is stored again for the next node', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentOf(server.url, server.folder, 'first', '--cores', '1', '--label', 'node=1')
  const session = await connect(server, { modules: 'bundle' })
  const first = new ComputeTask({ function: lengthOfFile, resources: { labels: { node: '1' } } })
  await session.submitTasks([first])
  const length = await first
  await server.kill()
  rmSync(join(server.folder, 'store'), { recursive: true, force: true })
  await server.start()
  await startAgentOf(server.url, server.folder, 'second', '--cores', '1', '--label', 'node=2')
  const second = new ComputeTask({ function: lengthOfFile, resources: { labels: { node: '2' } } })
  // It is refused until the driver has heard of that node.
  await eventually(() => session.submitTasks([second]))
  expect(await second).toBe(length)
})
