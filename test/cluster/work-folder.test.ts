import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startTestCluster } from './agents.ts'
import { echo } from './fixtures/value-tasks.ts'

it('a program fails with the reason if its agent cannot create a folder for it', async () => {
  const cluster = await startTestCluster()
  const folder = join(cluster.folder, 'work')
  const agent = await cluster.agent('full', '--cores', '1', '--work-dir', folder)
  const backend = await cluster.connect()
  const session = new Session([backend], { workDir: '/nowhere/at/all' })
  onTestFinished(() => session.close())
  await eventually(() => expect(backend.nodes).toHaveLength(1))
  // The folder is gone, as on a disk that was taken away.
  rmSync(folder, { recursive: true })
  writeFileSync(folder, '')
  const program = new ComputeTask({ executable: 'true' })
  const fn = new ComputeTask({ function: echo, args: [1] })
  await session.submitTasks([program, fn])
  await session.waitTasks([program, fn])
  expect([program.state, fn.state]).toEqual(['FAILED', 'DONE'])
  const text = 'node full cannot create a folder for its programs: E'
  expect(program.error).toMatchObject({ message: expect.stringContaining(text) as string })
  expect(agent.child.exitCode).toBeNull()
})
