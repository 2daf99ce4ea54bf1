import { expect, it, onTestFinished } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { echo } from '../../src/testing/contract-tasks.ts'
import { startAgentOf } from './agents.ts'
import { freePort } from '../free-port.ts'
import { RestartableServer } from './restartable-server.ts'
import { token } from './test-token.ts'

it('a session first used while the broker is down runs its tasks when it is back', async () => {
  const server = new RestartableServer(await freePort())
  await server.start()
  await startAgentOf(server.url, server.folder, 'only')
  const backend = await ClusterBackend.create({ servers: server.url, token })
  await server.kill()
  const session = new Session([backend])
  onTestFinished(() => session.close())
  const task = new ComputeTask({ function: echo, args: ['late'] })
  await session.submitTasks([task])
  await server.start()
  expect(await task).toBe('late')
})

it('ClusterBackend.local: a wrong name is refused before anything starts', async () => {
  await expect(ClusterBackend.local({ name: '' })).rejects.toMatchObject({ field: 'name' })
})
