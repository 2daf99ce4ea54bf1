import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { needs, requireCommand } from '../require.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

const quiet = { warn: () => {} }
const allNeeds = [...slurmNeeds, requireCommand('nsenter')]

/** Waits for a file; one task per node. */
const waiting = (file: string, retries = 0): ComputeTask =>
  new ComputeTask({
    executable: 'sh',
    arguments: ['-c', 'until [ -e "$0" ]; do sleep 0.05; done; hostname', file],
    resources: { cores: 4 },
    retries,
  })

async function started(session: Session): Promise<Map<string, string>> {
  const nodes = new Map<string, string>()
  const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
  telemetry.subscribe((event) => {
    if (event.event_type === 'TaskStarted') nodes.set(event.task_id ?? '', event.node_id ?? '')
  })
  return nodes
}

describe('slurmctld that is killed while tasks run', () => {
  const { slurm, folder, create } = launchedOnSlurm()

  needs(...allNeeds)(
    'row 101: nothing happens to tasks, also when it is started again',
    async () => {
      const { run, daemonOf, restart } = await slurm()
      await using session = new Session([await create({ log: quiet })], { log: quiet })
      const nodes = await started(session)
      const file = join(folder, 'controller')
      const tasks = [1, 2, 3, 4].map(() => waiting(file))
      await session.submitTasks(tasks)
      await expect.poll(() => nodes.size).toBe(4)
      process.kill(daemonOf('ctl') ?? 0, 'SIGKILL')
      // Without a controller tasks end and begin as before.
      writeFileSync(file, '')
      await session.waitTasks(tasks)
      const next = waiting(file)
      await session.submitTasks([next])
      await session.waitTasks([next])
      expect([...tasks, next].map(({ state }) => state)).toEqual(Array(5).fill('DONE'))
      restart('ctl')
      await expect.poll(() => run('squeue', '-h', '-o', '%T').catch(String)).toBe('RUNNING\n')
      const last = waiting(file)
      await session.submitTasks([last])
      await session.waitTasks([last])
      expect(last.state).toBe('DONE')
    },
  )
})

describe('slurmd of a node that is killed while tasks run', () => {
  const { slurm, folder, create } = launchedOnSlurm()

  needs(...allNeeds)('row 101: the tasks of the node go on', async () => {
    const { daemonOf } = await slurm()
    await using session = new Session([await create({ log: quiet })], { log: quiet })
    const nodes = await started(session)
    const file = join(folder, 'daemon')
    const tasks = [1, 2, 3, 4].map(() => waiting(file))
    await session.submitTasks(tasks)
    await expect.poll(() => nodes.size).toBe(4)
    process.kill(daemonOf('n2') ?? 0, 'SIGKILL')
    writeFileSync(file, '')
    await session.waitTasks(tasks)
    expect(tasks.map(({ stdout }) => stdout?.trim() ?? '').toSorted()).toEqual([
      'n1',
      'n2',
      'n3',
      'n4',
    ])
  })
})

describe('a node whose link is cut', () => {
  const { slurm, folder, create } = launchedOnSlurm()

  needs(...allNeeds)(
    'a node whose link is cut is lost in seconds; its task runs again on another',
    async () => {
      const { cutLink } = await slurm()
      const backend = await create({ log: quiet })
      const session = new Session([backend], { log: quiet })
      const nodes = await started(session)
      const file = join(folder, 'link')
      const tasks = [1, 2, 3, 4].map(() => waiting(file, 1))
      await session.submitTasks(tasks)
      await expect.poll(() => nodes.size).toBe(4)
      const lost = tasks.find(({ uid }) => nodes.get(uid) === 'n2')
      await cutLink('n2')
      // The others keep their nodes until the file is there, so that it waits for one of these.
      await expect.poll(() => lost?.retryAt ?? null).not.toBe(null)
      expect(tasks.filter((task) => task !== lost).map(({ state }) => state)).toEqual([
        'RUNNING',
        'RUNNING',
        'RUNNING',
      ])
      writeFileSync(file, '')
      await session.waitTasks(tasks)
      expect(tasks.map(({ state }) => state)).toEqual(Array(4).fill('DONE'))
      expect(lost?.stdout).not.toBe('n2\n')
      await session.close()
      // It waits longer than a session for an agent that does not answer.
      await backend.close()
    },
  )
})
