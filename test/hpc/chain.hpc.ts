import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, processesOf, scriptFile, toldRecord } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const long = scriptFile('long-script')
const waiting = scriptFile('waiting-script')
const reporting = scriptFile('reporting-script')

describe('a chain of jobs', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')
  const jobs = async (...options: readonly string[]): Promise<string[]> => {
    const all = ['-h', '--sort=i', '-o', '%i %T', ...options]
    return (await (await slurm()).run('squeue', ...all)).trim().split('\n')
  }
  /** Jobs that Slurm has not forgotten. */
  const states = async (ids: readonly string[]): Promise<string[]> =>
    (await jobs('--states=all', `--jobs=${ids.join(',')}`)).map((line) => line.split(' ')[1] ?? '')
  const idsOf = (lines: readonly string[]): string[] => lines.map((one) => one.split(' ')[0] ?? '')

  needs(...slurmNeeds)('a run that needs two jobs has every task done once', async () => {
    const { run } = await slurm()
    const { folder, start, startOther } = createLauncher(await slurm())
    const launch = start('--chain', '2', '--time', '10', long, folder)
    await launch.seen('waits')
    const before = await jobs()
    const [first = '', second = ''] = idsOf(before)
    expect(before).toEqual([`${first} RUNNING`, `${second} PENDING`])
    // Before that the backend ends its tasks, or Slurm does: both are the end of the allocation.
    const soon = new Date(Date.now() + 2000).toISOString().slice(0, 19)
    await run('env', 'TZ=UTC', 'scontrol', 'update', `JobId=${first}`, `EndTime=${soon}`)
    await launch.seen(`link 2 of 2, job ${second}, continues`)
    writeFileSync(join(folder, 'go'), '')
    const end = await launch.ended
    expect(end).toMatchObject({ code: 0, stdout: 'waits\nwaits\n' })
    expect(end.stderr).not.toContain('npx tutti resume')
    expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\nsecond\n')
    const status = await startOther('--json', 'status').ended
    const found = JSON.parse(status.stdout) as { readonly files: readonly string[] }
    expect(found).toMatchObject({ state: 'ended', tasks: { completed: 2, canceled: 0 } })
    expect(found.files).toHaveLength(2)
    // Also later, and by any of its jobs.
    const again = await start('--attach', second).ended
    expect(again).toMatchObject({ code: 0, stdout: 'waits\nwaits\n' })
    await expect.poll(queue).toBe('')
    await expect.poll(() => processesOf(folder)).toEqual([])
  })

  needs(...slurmNeeds)('jobs that are not needed leave the queue with the first', async () => {
    const { folder, start, startJson } = createLauncher(await slurm())
    const detached = await startJson('--detach', '--chain', '3', '--time', '10', waiting, 'go')
      .ended
    const { job_id: first, later_job_ids: later } = JSON.parse(detached.stdout) as {
      readonly job_id: string
      readonly later_job_ids: readonly string[]
    }
    expect(idsOf(await jobs())).toEqual([first, ...later])
    const following = start('--attach', later[0] ?? '')
    await following.seen('waits')
    writeFileSync(join(folder, 'go'), '')
    const end = await following.ended
    expect(end).toMatchObject({ code: 0, stdout: 'waits\ndone\n' })
    expect(end.stderr).not.toContain('continues')
    expect(await states(later)).toEqual(['CANCELLED', 'CANCELLED'])
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    'a script that has lost nothing is not run again, though its allocation was near its end',
    async () => {
      const { run } = await slurm()
      const { start } = createLauncher(await slurm())
      const launch = start('--chain', '2', '--time', '10', reporting)
      await launch.seen('reports')
      const [first = '', second = ''] = idsOf(await jobs())
      await run('scontrol', 'update', `JobId=${first}`, 'TimeLimit=4')
      const end = await launch.ended
      expect(end).toMatchObject({ code: 0, stdout: 'reports\nreported\n' })
      expect(end.stderr).not.toContain('npx tutti resume')
      expect(await states([second])).toEqual(['CANCELLED'])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('a failure of the script ends the chain with its exit code', async () => {
    const { start } = createLauncher(await slurm())
    const failing = scriptFile('launched-script')
    const end = await start('--chain', '2', '--time', '10', failing, '7').ended
    expect([end.code, end.stdout]).toEqual([7, 'n1: n1\n'])
    expect(end.stderr).toContain('the script has ended with exit code 7')
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    'the job that runs is canceled: none follows; resume asks again',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--chain', '2', '--time', '10', long, folder)
      await launch.seen('waits')
      const [first = '', second = ''] = idsOf(await jobs())
      await run('scancel', first)
      const end = await launch.ended
      expect(end.code).toBe(3)
      expect(end.stderr).toContain(`AllocationLostError  job ${first} is CANCELLED`)
      expect(await states([second])).toEqual(['CANCELLED'])
      expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\n')
      await expect.poll(queue).toBe('')
      const again = startOther('resume', toldRecord(end.stderr))
      await again.seen('waits')
      expect(await jobs()).toHaveLength(2)
      writeFileSync(join(folder, 'go'), '')
      expect((await again.ended).code).toBe(0)
      expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\nsecond\n')
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds, requireCommand('script'))(
    'Ctrl-C cancels jobs of a chain that wait, all of them',
    async () => {
      const { startInTerminal } = createLauncher(await slurm())
      const launch = startInTerminal('--chain', '2', '--time', '10', '--', '--hold', waiting)
      await launch.seen('pending (JobHeldUser)')
      const ids = idsOf(await jobs())
      expect(launch.stdout()).toContain(`link 1 of 2, job ${ids[0]}: pending`)
      launch.child.stdin?.write('\x03')
      await launch.seen('detach, or cancel it?')
      launch.child.stdin?.write('c\n')
      expect(await launch.ended).toMatchObject({
        code: 130,
        stdout: expect.stringContaining(`jobs ${ids.join(', ')} are canceled`) as unknown,
      })
      expect(await states(ids)).toEqual(['CANCELLED', 'CANCELLED'])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('if Slurm refuses a later job, none is left', async () => {
    const { env } = await slurm()
    const { folder, start } = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    const refusal = 'QOSMaxSubmitJobPerUserLimit'
    const lines = [
      `case "$*" in *--dependency*) echo ${refusal} >&2; exit 1;; esac`,
      `PATH="$\{PATH#bin:}" exec sbatch "$@"`,
    ]
    mkdirSync(join(folder, 'bin'))
    writeFileSync(join(folder, 'bin/sbatch'), `#!/bin/sh\n${lines.join('\n')}\n`, { mode: 0o755 })
    const end = await start('--chain', '2', '--time', '10', waiting, 'never').ended
    expect([end.code, end.stdout]).toEqual([3, ''])
    expect(end.stderr).toContain(refusal)
    expect(readdirSync(join(folder, 'telemetry'))).toEqual([])
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('if the first job would never start, none is left', async () => {
    const { folder, start } = createLauncher(await slurm())
    const never = ['--partition', 'small', '--time', '60']
    const end = await start('--chain', '2', ...never, waiting, 'never').ended
    expect([end.code, end.stdout]).toEqual([3, ''])
    expect(end.stderr).toContain('would never start in partition small')
    expect(readdirSync(join(folder, 'telemetry'))).toEqual([])
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('a signal that cancels does so with all of its jobs', async () => {
    const { start } = createLauncher(await slurm())
    const launch = start('--chain', '3', '--cancel-on-signal', '--time', '10', waiting, 'never')
    await launch.seen('waits')
    const ids = idsOf(await jobs())
    launch.child.kill('SIGINT')
    expect((await launch.ended).code).toBe(130)
    await expect.poll(queue).toBe('')
    expect(await states(ids)).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED'])
  })
})
