import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { eventually } from '../eventually.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, scriptFile, toldRecord } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const script = scriptFile('interrupted-script')

describe('a launched script that somebody ends', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')

  needs(...slurmNeeds)(
    'row 101: tasks of a canceled job end CANCELED, and the record is whole and goes on',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--time', '10', script, join(folder, 'go'))
      await launch.seen('waits')
      await run('scancel', '--user=root')
      const end = await launch.ended
      expect(end.code).toBe(3)
      expect(end.stderr).toContain('AllocationLostError')
      // Slurm has signaled the server as well, which is no fault.
      expect(end.stderr).not.toContain('NatsServer')
      const record = toldRecord(end.stderr)
      const events = readFileSync(record, 'utf8')
      expect(events).toMatch(/"TaskCanceled".*AllocationLostError: COMPLETING/)
      expect(events).toContain('"SessionEnded"')
      expect(await startOther('journal', 'verify', record).ended).toMatchObject({ code: 0 })
      writeFileSync(join(folder, 'go'), '')
      expect(await startOther('resume', record).ended).toMatchObject({ code: 0 })
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('a launcher that cancels its job says how to go on', async () => {
    const { folder, start } = createLauncher(await slurm())
    const launch = start('--cancel-on-signal', '--time', '10', script, join(folder, 'never'))
    await launch.seen('waits')
    launch.child.kill('SIGINT')
    const end = await launch.ended
    expect([end.code, end.stderr]).toEqual([130, expect.stringMatching(/^job \d+ is canceled$/m)])
    expect(toldRecord(end.stderr)).toMatch(/\.jsonl$/)
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('a launcher obeys a signal while sbatch hangs', async () => {
    const { env, freeze } = await slurm()
    const { folder, start } = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    mkdirSync(join(folder, 'bin'))
    const lines = ['#!/bin/sh', ': > asked', 'PATH="${PATH#bin:}" exec sbatch "$@"', '']
    writeFileSync(join(folder, 'bin/sbatch'), lines.join('\n'), { mode: 0o755 })
    const thaw = freeze('ctl')
    onTestFinished(thaw)
    for (const options of [
      ['--cancel-on-signal', '--chain', '2'],
      ['--driver', 'here'],
    ]) {
      const launch = start(...options, '--time', '10', script, join(folder, 'never'))
      await eventually(() => expect(existsSync(join(folder, 'asked'))).toBe(true))
      launch.child.kill('SIGTERM')
      const end = await launch.ended
      expect([end.code, end.stdout]).toEqual([143, ''])
      // On a busy machine the signal may come so late that sbatch itself gives up first.
      expect(end.stderr).toMatch(
        /sbatch did not answer before it was interrupted|sbatch failed: .*timed out/,
      )
      expect(end.stderr).toContain('Slurm may have taken the job nevertheless')
      rmSync(join(folder, 'asked'))
    }
    thaw()
    // Jobs that Slurm makes of these requests nevertheless end as soon as they begin.
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('a launcher that cannot cancel its job obeys a signal', async () => {
    const { env, run } = await slurm()
    const { folder, start } = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    mkdirSync(join(folder, 'bin'))
    const silent = 'echo "scancel: error: Unable to contact slurm controller" >&2; exit 1'
    writeFileSync(join(folder, 'bin/scancel'), `#!/bin/sh\n${silent}\n`, { mode: 0o755 })
    const launch = start('--cancel-on-signal', '--time', '10', script, join(folder, 'never'))
    await launch.seen('waits')
    const job = (await run('squeue', '-h', '-o', '%i')).trim()
    launch.child.kill('SIGINT')
    const end = await launch.ended
    expect([end.code, end.stderr]).toEqual([
      130,
      expect.stringMatching(new RegExp(`not canceled: .*; try: scancel ${job}$`, 'm')),
    ])
    await run('scancel', job)
    await expect.poll(queue).toBe('')
  })

  for (const [signal, code] of [
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const) {
    needs(...slurmNeeds)(
      `inside an allocation, ${signal} for the launcher is for the script, which closes its record`,
      async () => {
        const { env, run } = await slurm()
        const held = ['--parsable', '-N2', '--exclusive', '--mem=0', '-t', '10', '-o', '/dev/null']
        const job = (await run('sbatch', ...held, '--wrap', 'sleep 100000')).trim()
        await expect.poll(queue).toBe('RUNNING\n')
        const launcher = createLauncher({ env: { ...env, SLURM_JOB_ID: job } })
        const launch = launcher.start(script, join(launcher.folder, 'go'), 'closes')
        await launch.seen('waits')
        launch.child.kill(signal)
        const end = await launch.ended
        expect(end.code).toBe(code)
        const record = toldRecord(end.stderr)
        const verified = await launcher.startOther('journal', 'verify', record).ended
        expect(verified).toMatchObject({ code: 0 })
        // Neither the script's step nor that of the agents.
        const steps = (): Promise<string> => run('squeue', '-h', '-s', '-j', job, '-o', '%j')
        await expect.poll(steps).not.toMatch(/^sh$/m)
        await run('scancel', job)
        await expect.poll(queue).toBe('')
      },
    )
  }

  needs(...slurmNeeds)(
    'row 101: a killed one is continued once Slurm says that its job has ended',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--time', '10', script, join(folder, 'go'))
      await launch.seen('waits')
      const job = (await run('squeue', '-h', '-o', '%i')).trim()
      // The job may end before the step that ends it has reported its exit.
      const kill = ['pkill', '-KILL', '-f', 'interrupted-script.ts /']
      await run('srun', '--overlap', '--jobid', job, ...kill).catch(() => {})
      const end = await launch.ended
      expect(end.code).toBe(137)
      const record = toldRecord(end.stderr)
      await expect.poll(queue).toBe('')
      // Readers ask Slurm as well: the lock is that of a process on another host.
      const status = await startOther('--json', 'status', record).ended
      expect(JSON.parse(status.stdout)).toMatchObject({ state: 'interrupted' })
      const tail = await startOther('tail', '--follow', record).ended
      expect([tail.code, tail.stderr]).toEqual([
        0,
        expect.stringContaining('has no end of its session'),
      ])
      writeFileSync(join(folder, 'go'), '')
      expect(await startOther('resume', record).ended).toMatchObject({ code: 0 })
      await expect.poll(queue).toBe('')
    },
  )

  for (const closes of [false, true]) {
    const how = closes ? 'closes its session' : 'ends the script as ever'
    needs(...slurmNeeds, requireCommand('nsenter'))(
      `row 26: a SIGTERM that is not Slurm's ${how}`,
      async () => {
        const { runAt } = await slurm()
        const { folder, start } = createLauncher(await slurm())
        const options = ['--time', '10', script, join(folder, 'never'), ...(closes ? ['yes'] : [])]
        const launch = start(...options)
        await launch.seen('waits')
        await runAt('n1', 'pkill', '-TERM', '-f', 'interrupted-script.ts /')
        const end = await launch.ended
        expect(end.code).toBe(143)
        const events = readFileSync(toldRecord(end.stderr), 'utf8')
        expect(events).not.toContain('AllocationLostError')
        expect(events.includes('"SessionEnded"')).toBe(closes)
        expect(/"TaskCanceled".*session closed/.test(events)).toBe(closes)
        await expect.poll(queue).toBe('')
      },
    )
  }

  needs(...slurmNeeds)(
    'row 101: a canceled job is the reason also where the script closes its session on signals',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--time', '10', script, join(folder, 'never'), 'yes')
      await launch.seen('waits')
      await run('scancel', '--user=root')
      const end = await launch.ended
      expect(end.code).toBe(3)
      const record = toldRecord(end.stderr)
      expect(readFileSync(record, 'utf8')).toMatch(/"TaskCanceled".*AllocationLostError/)
      expect(await startOther('journal', 'verify', record).ended).toMatchObject({ code: 0 })
      await expect.poll(queue).toBe('')
    },
  )
})
