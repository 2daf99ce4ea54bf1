import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
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
  /** What the script tells in the end. */
  const lastLine = (stdout: string): Record<string, unknown> =>
    JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Record<string, unknown>

  needs(...slurmNeeds)('come with the work, of two kinds, and go when they are idle', async () => {
    const { start } = createLauncher(await slurm())
    const end = await start(...elastic, 'kinds').ended
    expect([end.code, end.stderr]).toEqual([0, ''])
    const told = JSON.parse(end.stdout) as Record<string, unknown>
    expect(told).toMatchObject({ before: 0, joined: 3, most: 3, after: 0, ends: ['DONE'] })
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
  })

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

  needs(...slurmNeeds)('three refusals in a row end the work, in the words of Slurm', async () => {
    const { start } = createLauncher(await slurm())
    const end = await start(...elastic, 'refused').ended
    const [failure] = (JSON.parse(end.stdout) as { readonly ends: readonly string[] }).ends
    expect(failure).toMatch(/^FAILED .*no further allocation is asked for: 3 failed in a row/)
    expect(failure).toContain('Invalid license specification')
    expect(end.stderr.match(/AllocationFailed/g)).toHaveLength(3)
    expect(await queue()).toBe('')
  })

  needs(...slurmNeeds)(
    'a scheduler that is away has refused nothing; ranks begin later',
    async () => {
      const { daemonOf, restart } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const goFile = join(folder, 'go')
      const launch = start(...elastic, 'ranks', goFile)
      await launch.seen('created')
      process.kill(daemonOf('ctl') ?? 0, 'SIGKILL')
      writeFileSync(goFile, '')
      await launch.seen('SchedulerSilent')
      restart('ctl')
      const end = await launch.ended
      expect(JSON.parse(end.stdout.split('\n')[1] ?? '')).toMatchObject({
        ends: ['DONE'],
        joined: 4,
      })
      expect(end.code).toBe(0)
      expect(end.stderr).not.toContain('AllocationFailed')
    },
  )

  needs(...slurmNeeds)('a request without an answer leaves no job that nobody has', async () => {
    const { freeze, run } = await slurm()
    const { folder, start } = createLauncher(await slurm())
    const goFile = join(folder, 'go')
    const launch = start(...elastic, 'single', goFile)
    await launch.seen('created')
    const both = ['-p', 'small', '-N2', '--exclusive', '-o', '/dev/null']
    await run('sbatch', '-J', 'busy', ...both, '--wrap', 'sleep 10000')
    onTestFinished(async () => void (await run('scancel', '--name=busy')))
    const thaw = freeze('ctl')
    onTestFinished(thaw)
    writeFileSync(goFile, '')
    await launch.seen('SchedulerSilent')
    thaw()
    // The one that the controller makes of the request that it had not answered, and the next.
    const seen = new Set<string>()
    let most = 0
    await eventually(async () => {
      const lines = await run('squeue', '-h', '-o', '%i %j')
      const pilots = lines.split('\n').filter((line) => line.includes('tutti-pilot'))
      for (const line of pilots) seen.add(line)
      most = Math.max(most, pilots.length)
      expect(seen.size).toBe(2)
    })
    expect(most).toBe(1)
    await run('scancel', '--name=busy')
    const end = await launch.ended
    expect(JSON.parse(end.stdout.split('\n')[1] ?? '')).toMatchObject({ ends: ['DONE'], joined: 1 })
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

  needs(...slurmNeeds)('work goes on in the next one when the time of one is over', async () => {
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
    expect([end.code, end.stderr]).toEqual([0, ''])
    const told = lastLine(end.stdout)
    expect(told).toMatchObject({ joined: 2, most: 1, ends: ['DONE'], retried: 0 })
    // The second one is given back before its time.
    expect(told['endings']).toEqual([job, job])
    expect(told['left']).toEqual(Array(2).fill('tutti.NodeDrained'))
    expect(await queue()).toBe('')
  })

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

  needs(...slurmNeeds)('an answer that cannot be read leaves no job above `max`', async () => {
    const { env, run } = await slurm()
    const { folder, start } = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    const both = ['-p', 'small', '-N2', '--exclusive', '-o', '/dev/null', '-J', 'busy']
    await run('sbatch', ...both, '--wrap', 'sleep 10000')
    onTestFinished(async () => void (await run('scancel', '--name=busy')))
    const lines = [
      'PATH="${PATH#bin:}"',
      `squeue -h -o %j | grep -c tutti-pilot >> '${folder.replaceAll("'", `'\\''`)}/counts'`,
      'id=$(sbatch "$@") && echo "job $id was submitted"',
    ]
    mkdirSync(join(folder, 'bin'))
    writeFileSync(join(folder, 'bin/sbatch'), `#!/bin/sh\n${lines.join('\n')}\n`, { mode: 0o755 })
    const end = await start(...elastic, 'unread').ended
    const [failure] = lastLine(end.stdout)['ends'] as string[]
    expect(failure).toMatch(/^FAILED .*which is maxTotal/)
    expect(end.stderr).toMatch(/AllocationFailed.*sbatch --parsable printed something unexpected/)
    // What the first request has made is gone before the second one.
    expect(readFileSync(join(folder, 'counts'), 'utf8')).toBe('0\n0\n')
    expect(await run('squeue', '-h', '-o', '%j')).toBe('busy\n')
  })

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
