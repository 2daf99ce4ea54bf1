import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import type { KeptTask } from './fixtures/kept-tasks.ts'
import { storedNames } from './stored-names.ts'
import { token } from './test-token.ts'
import { endReturned } from './returned-tasks.ts'

/** As a person does it, or a tool that cleans up. */
async function deleteStreams({ server }: TestCluster): Promise<void> {
  const connection = await connect({ servers: server.url, token })
  const manager = await jetstreamManager(connection)
  for (const name of await storedNames(server.url)) await manager.streams.delete(name)
  await connection.close()
}

const sharedServer = sharedTestCluster()

const lines = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []

it.each([
  ['in a message', 10],
  ['too large for a message', 500_000],
])('a stream that is deleted under a session is created again: ends %s', async (_, length) => {
  const cluster = await sharedServer()
  const { folder, server } = cluster
  await startAgentHere(cluster, { name: 'only' })
  const session = new Session([await cluster.connect()])
  onTestFinished(() => session.close())
  const task = new ComputeTask({ function: heldWork, args: [folder, 'held', length] })
  await session.submitTasks([task])
  await eventually(() => expect(lines(join(folder, 'begun'))).toEqual(['held']))
  // Nobody notices before the result is stored.
  await deleteStreams(cluster)
  writeFileSync(join(folder, 'go'), '')
  expect(await task).toHaveLength(length)
  await eventually(async () => expect(await storedNames(server.url)).toHaveLength(1))
  await session.close()
  expect(await storedNames(server.url)).toEqual([])
})

it('a driver that returns after its stream was deleted begins nothing twice', async () => {
  const cluster = await sharedServer()
  const { folder, server } = cluster
  await startAgentHere(cluster, { name: 'only', cores: 2 })
  const tasks: readonly KeptTask[] = [
    { uid: 'held', kind: 'held' },
    { uid: 'program', kind: 'program' },
  ]
  const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))
  const driver = startProgram(program, [server.url, folder, JSON.stringify(tasks)])
  onTestFinished(() => void driver.child.kill('SIGKILL'))
  await eventually(() => expect(lines(join(folder, 'begun'))).toHaveLength(2))
  await deleteStreams(cluster)
  driver.child.kill('SIGKILL')
  await driver.ended
  const session = new Session([await cluster.connect()], { id: 'kept' })
  onTestFinished(() => session.close())
  await endReturned(session, folder, tasks)
  expect(lines(join(folder, 'begun'))).toHaveLength(2)
  expect(await cluster.agents()).toMatchObject([{ name: 'only', state: 'ready' }])
})
