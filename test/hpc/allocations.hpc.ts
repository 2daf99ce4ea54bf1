import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { eventually } from '../eventually.ts'
import { needs } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const elastic = ['--driver', 'here', scriptFile('elastic-script')]

describe('allocations that the backend asks for', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')

  const runningJob = async (): Promise<string> =>
    (await (await slurm()).run('squeue', '-h', '-t', 'RUNNING', '-o', '%i')).trim()
  const endAfter = async (job: string, seconds: number): Promise<void> => {
    const end = new Date(Date.now() + seconds * 1000).toISOString().slice(0, 19)
    const { run } = await slurm()
    await run('env', 'TZ=UTC', 'scontrol', 'update', `JobId=${job}`, `EndTime=${end}`)
  }
  /** The last output of the script. */
  const lastLine = (stdout: string): Record<string, unknown> =>
    JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Record<string, unknown>

  needs(...slurmNeeds)(
    'allocations come with the work, of two kinds, and end when they are idle',
    async () => {
      const { start } = createLauncher(await slurm())
      const end = await start(...elastic, 'kinds').ended
      expect(end.code).toBe(0)
      expect(end.stderr).toMatch(/^(?:record {2}\S+\n)?$/)
      const told = JSON.parse(end.stdout) as Record<string, unknown>
      expect(told).toMatchObject({ before: 0, joined: 3, max: 3, after: 0, ends: ['DONE'] })
      // They were idle, and given back: nothing was lost.
      expect(told['left']).toEqual(Array(3).fill('tutti.NodeDrained'))
      expect(told['facts']).toEqual([
        expect.objectContaining({ backlog: 2, idle_seconds: 1, time_seconds: 600, max: 2 }),
        expect.objectContaining({ gpus_per_node: 2, labels: { kind: 'gpu' }, sbatch: ['-wn4'] }),
      ])
      expect(told['refusal']).toMatch(
        /no agent has 5 cores; an allocation .* has a node with 4 cores/,
      )
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)('one that is lost is replaced, and its task is tried again', async () => {
    const { run } = await slurm()
    const { start } = createLauncher(await slurm())
    const launch = start(...elastic, 'endless')
    await launch.seen('runs')
    await run('scancel', '--user=root')
    const end = await launch.ended
    const [, line = ''] = end.stdout.split('\n')
    expect(JSON.parse(line)).toMatchObject({ joined: 2, ends: ['DONE'], retried: 1, after: 0 })
    expect(end.stderr).toMatch(/AllocationFailed.*CANCELLED.*another one is tried later/)
    expect(await queue()).toBe('')
  })

  needs(...slurmNeeds)('work that one could not run goes to another kind', async () => {
    const { start } = createLauncher(await slurm())
    const end = await start(...elastic, 'vain').ended
    expect(JSON.parse(end.stdout)).toMatchObject({ ends: ['DONE'], partitions: ['small', 'main'] })
    expect(end.stderr).toMatch(/AllocationFailed.*could run none of the tasks.*tried later/)
    expect(await queue()).toBe('')
  })

  needs(...slurmNeeds)('one whose agents are given up is replaced, though it runs', async () => {
    const { runAt, run } = await slurm()
    const { folder, start } = createLauncher(await slurm())
    const goFile = join(folder, 'go')
    const launch = start(...elastic, 'spare', goFile)
    await launch.seen('created')
    let told = ''
    void launch.seen('AgentGivenUp').then(() => (told = 'given up'))
    await eventually(async () => {
      const node = (await run('squeue', '-h', '-t', 'RUNNING', '-o', '%N')).trim()
      if (told === '' && node !== '') {
        await runAt(node, 'pkill', '-KILL', '-f', 'node-agent.ts n').catch(() => {})
      }
      expect(told).toBe('given up')
    })
    writeFileSync(goFile, '')
    const end = await launch.ended
    expect(JSON.parse(end.stdout.split('\n')[1] ?? '')).toMatchObject({ ends: ['DONE'] })
  })

  needs(...slurmNeeds)(
    'work continues in the next allocation when the time of one is over',
    async () => {
      const { folder, start } = createLauncher(await slurm())
      const goFile = join(folder, 'go')
      const launch = start(...elastic, 'short', goFile)
      await launch.seen('runs')
      const job = await runningJob()
      // More and less than twice its grace, and than its grace of 120 s.
      await endAfter(job, 200)
      await launch.seen('ending 1')
      await endAfter(job, 100)
      await launch.seen('ending 2')
      writeFileSync(goFile, '')
      const end = await launch.ended
      expect(end.code).toBe(0)
      expect(end.stderr).toMatch(/^(?:record {2}\S+\n)?$/)
      const told = lastLine(end.stdout)
      expect(told).toMatchObject({ joined: 2, max: 1, ends: ['DONE'], retried: 0 })
      // The second one is given back before its time.
      expect(told['endings']).toEqual([job, job])
      expect(told['left']).toEqual(Array(2).fill('tutti.NodeDrained'))
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'a node whose time ends before its task is lost with that task',
    async () => {
      const { folder, start } = createLauncher(await slurm())
      const goFile = join(folder, 'go')
      const launch = start(...elastic, 'killed', goFile)
      await launch.seen('runs')
      await endAfter(await runningJob(), 20)
      await launch.seen('lost')
      writeFileSync(goFile, '')
      const end = await launch.ended
      const told = lastLine(end.stdout)
      expect(told).toMatchObject({ joined: 2, ends: ['DONE'], retried: 1 })
      expect(told['losses']).toEqual([{ reason: expect.stringMatching(/./) as unknown, tasks: 1 }])
      expect((told['left'] as string[])[0]).toBe('tutti.NodeLost')
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'the end of other nodes is not that of a script which needed none',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const goFile = join(folder, 'go')
      const launch = start('--nodes', '1', '--time', '10', ...elastic, 'unused', goFile)
      await launch.seen('created')
      await run('scancel', await runningJob())
      await expect.poll(queue).toBe('')
      writeFileSync(goFile, '')
      expect(await launch.ended).toMatchObject({ code: 0 })
    },
  )

  needs(...slurmNeeds)('a script that is killed leaves no job', async () => {
    const { folder, start } = createLauncher(await slurm())
    const pidFile = join(folder, 'pid')
    const launch = start(...elastic, 'endless', pidFile)
    await launch.seen('runs')
    expect(await queue()).toBe('RUNNING\n')
    process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL')
    expect((await launch.ended).code).toBe(137)
    await expect.poll(queue).toBe('')
  })
})
