import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { eventually } from '../eventually.ts'
import { needs } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const elastic = ['--driver', 'here', scriptFile('elastic-script')]

describe('requests for allocations', () => {
  const slurm = sharedSlurm()

  needs(...slurmNeeds)('three refusals in a row end the work, in the words of Slurm', async () => {
    const { start } = createLauncher(await slurm())
    const end = await start(...elastic, 'refused').ended
    const [failure] = (JSON.parse(end.stdout) as { readonly ends: readonly string[] }).ends
    expect(failure).toMatch(/^FAILED .*no further allocation is requested: 3 failed in a row/)
    expect(failure).toContain('Invalid license specification')
    expect(end.stderr.match(/AllocationFailed/g)).toHaveLength(3)
    expect(await (await slurm()).run('squeue', '-h')).toBe('')
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
    // Also those that were canceled between two looks.
    const listPilots = async (): Promise<string[]> => {
      const lines = await run('squeue', '-h', '-t', 'all', '-o', '%i %j %t')
      return lines.split('\n').filter((line) => line.includes('tutti-pilot'))
    }
    const idOf = (line: string): string => line.split(' ')[0] ?? ''
    const earlier = new Set((await listPilots()).map(idOf))
    const thaw = freeze('ctl')
    onTestFinished(thaw)
    writeFileSync(goFile, '')
    await launch.seen('SchedulerSilent')
    thaw()
    // The job that the controller made of the unanswered request, and the next one.
    let max = 0
    await eventually(async () => {
      const pilots = (await listPilots()).filter((line) => !earlier.has(idOf(line)))
      max = Math.max(max, pilots.filter((line) => line.endsWith(' PD')).length)
      expect(pilots).toHaveLength(2)
    })
    expect(max).toBe(1)
    await run('scancel', '--name=busy')
    const end = await launch.ended
    expect(JSON.parse(end.stdout.split('\n')[1] ?? '')).toMatchObject({ ends: ['DONE'], joined: 1 })
  })

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
    const [failure] = (JSON.parse(end.stdout) as { readonly ends: readonly string[] }).ends
    expect(failure).toMatch(/^FAILED .*which is maxTotal/)
    expect(end.stderr).toMatch(/AllocationFailed.*sbatch --parsable printed something unexpected/)
    // The job of the first request is gone before the second request.
    expect(readFileSync(join(folder, 'counts'), 'utf8')).toBe('0\n0\n')
    expect(await run('squeue', '-h', '-o', '%j')).toBe('busy\n')
  })
})
