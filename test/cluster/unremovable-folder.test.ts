import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished } from 'vitest'
import type { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { type RunningCommand, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { immutableFiles, mounts, unmountBelow } from '../mounts.ts'
import { needs } from '../require.ts'
import { sessionElsewhere, startTestCluster, type TestCluster } from './agents.ts'
import { heldWork } from './fixtures/cluster-tasks.ts'

const driver = fileURLToPath(new URL('fixtures/driver-elsewhere.ts', import.meta.url))

/** Leaves what root cannot remove: an immutable file, and a mounted file system. */
const leaveUnremovable = 'touch file && chattr +i file && mkdir disk && mount -t tmpfs none disk'

const withRights = needs(immutableFiles, mounts)

/** An agent in its own process, and a session whose task runs there until the test ends it. */
class SharedAgent {
  readonly cluster: TestCluster
  readonly agent: RunningCommand
  readonly other: Session
  readonly #held: ComputeTask<string>

  static async start(): Promise<SharedAgent> {
    const cluster = await startTestCluster()
    onTestFinished(() => {
      unmountBelow(cluster.folder)
      execFileSync('chattr', ['-R', '-f', '-i', cluster.folder])
    })
    const workDir = join(cluster.folder, 'work')
    const agent = await cluster.agent('only', '--cores', '2', '--work-dir', workDir)
    const other = await openSession(cluster)
    const held = new ComputeTask({ function: heldWork, args: [cluster.folder, 'held', 1] })
    await other.submitTasks([held])
    await eventually(() => expect(held.state).toBe('RUNNING'))
    return new SharedAgent(cluster, agent, other, held)
  }

  private constructor(
    cluster: TestCluster,
    agent: RunningCommand,
    other: Session,
    held: ComputeTask<string>,
  ) {
    this.cluster = cluster
    this.agent = agent
    this.other = other
    this.#held = held
  }

  /** The task of the other session continues, and the agent accepts further ones. */
  async expectUnharmed(): Promise<void> {
    await runScript(this.other, 'true')
    writeFileSync(join(this.cluster.folder, 'go'), '')
    await expect(this.#held).resolves.toBe('x')
  }

  async expectDrained(): Promise<void> {
    this.agent.child.kill('SIGTERM')
    const end = await this.agent.ended
    expect(end.code).toBe(0)
    expect(end.stderr.split('WorkFolderNotRemoved')).toHaveLength(2)
  }
}

async function openSession(cluster: TestCluster): Promise<Session> {
  const session = sessionElsewhere(await cluster.connect())
  onTestFinished(() => session.close())
  return session
}

async function runScript(session: Session, script: string): Promise<void> {
  const program = new ComputeTask({ executable: 'sh', arguments: ['-c', script] })
  await session.submitTasks([program])
  await session.waitTasks([program])
  expect(program.state).toBe('DONE')
}

withRights('row 119: an unremovable folder of a closed session harms no other', async () => {
  const shared = await SharedAgent.start()
  const session = await openSession(shared.cluster)
  await runScript(session, leaveUnremovable)
  await session.close()
  await shared.expectUnharmed()
  await shared.expectDrained()
})

withRights('row 119: an unremovable folder of a killed driver harms no other session', async () => {
  const shared = await SharedAgent.start()
  const killed = startProgram(driver, [shared.cluster.url, leaveUnremovable])
  onTestFinished(() => void killed.child.kill('SIGKILL'))
  await killed.seen('program: DONE')
  killed.child.kill('SIGKILL')
  await Promise.race([shared.agent.seen('WorkFolderNotRemoved'), shared.agent.ended])
  await shared.expectUnharmed()
  await shared.expectDrained()
})

withRights('row 119: a drained agent ends with 0, although it cannot remove a folder', async () => {
  const shared = await SharedAgent.start()
  await runScript(await openSession(shared.cluster), leaveUnremovable)
  writeFileSync(join(shared.cluster.folder, 'go'), '')
  await shared.expectDrained()
})
