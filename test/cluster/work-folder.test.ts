import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import type { RunningCommand } from '../cli/run-command.ts'
import { sessionElsewhere, startAgentHere, startTestCluster, type TestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'
import { echo } from './fixtures/value-tasks.ts'

it('a program fails with the reason if its agent cannot create a folder for it', async () => {
  const cluster = await startTestCluster()
  const folder = join(cluster.folder, 'work')
  const agent = await cluster.agent('full', '--cores', '1', '--work-dir', folder)
  const backend = await cluster.connect()
  const session = sessionElsewhere(backend)
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

/** A session whose folder no node has, so that its programs run in one of the agent. */
async function openSession(cluster: TestCluster): Promise<Session> {
  const backend = await cluster.connect()
  const session = sessionElsewhere(backend)
  onTestFinished(() => session.close())
  await eventually(() => expect(backend.nodes).toHaveLength(1))
  return session
}

async function runProgram(session: Session, program: ComputeTask): Promise<void> {
  await session.submitTasks([program])
  await session.waitTasks([program])
  expect(program.state).toBe('DONE')
}

/** Leaves a process that creates files in its folder without a pause. */
async function leaveWriter(session: Session, folder: string): Promise<void> {
  const pidFile = join(folder, 'pid')
  const loop = 'while :; do i=$(((i+1)%500)); mkdir -p d; echo > d/$i; echo > $i; done'
  const writer = `echo $$ > ${pidFile}; ${loop}`
  const script = `setsid sh -c '${writer}' > /dev/null 2>&1 &`
  onTestFinished(() => void process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL'))
  await runProgram(session, new ComputeTask({ executable: 'sh', arguments: ['-c', script] }))
  await eventually(() => expect(readFileSync(pidFile, 'utf8')).toMatch(/\n$/))
}

async function drain(agent: RunningCommand): Promise<void> {
  agent.child.kill('SIGTERM')
  expect(await agent.ended).toMatchObject({ code: 0 })
}

it('row 119: a process that writes to the folder of a closed session harms no other', async () => {
  const cluster = await startTestCluster()
  const workDir = join(cluster.folder, 'work')
  const agent = await cluster.agent('only', '--cores', '2', '--work-dir', workDir)
  const other = await openSession(cluster)
  const held = new ComputeTask({ function: heldWork, args: [cluster.folder, 'held', 1] })
  await other.submitTasks([held])
  await eventually(() => expect(held.state).toBe('RUNNING'))
  const closed = await openSession(cluster)
  await leaveWriter(closed, cluster.folder)
  await closed.close()
  await runProgram(other, new ComputeTask({ executable: 'true' }))
  writeFileSync(join(cluster.folder, 'go'), '')
  await expect(held).resolves.toBe('x')
  await drain(agent)
})

it('row 119: a drained agent ends with 0 while a process writes to its folder', async () => {
  const cluster = await startTestCluster()
  const workDir = join(cluster.folder, 'work')
  const agent = await cluster.agent('only', '--cores', '1', '--work-dir', workDir)
  await leaveWriter(await openSession(cluster), cluster.folder)
  await drain(agent)
})

it('the folder of a session that somebody removed is created again', async () => {
  const cluster = await startTestCluster()
  const workDir = join(cluster.folder, 'work')
  await startAgentHere(cluster, { name: 'only', workDir })
  const session = await openSession(cluster)
  const print = { executable: 'pwd' }
  const first = new ComputeTask(print)
  await runProgram(session, first)
  rmSync((await first).stdout.trim(), { recursive: true })
  await runProgram(session, new ComputeTask(print))
})
