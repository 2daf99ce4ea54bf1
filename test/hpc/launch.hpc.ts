import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, processesOf, scriptFile, toldRecord } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const script = scriptFile('waiting-script')

describe('tutti launch and the life of its job', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')

  needs(...slurmNeeds)('a detached launch prints its job, and can be followed later', async () => {
    const { folder, start } = createLauncher(await slurm())
    const detached = await start('--detach', '--time', '10', script, 'go').ended
    expect(detached).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\d+\n$/) as unknown })
    const job = detached.stdout.trim()
    const following = start('--attach', job)
    await following.seen('waits')
    writeFileSync(join(folder, 'go'), '')
    expect(await following.ended).toMatchObject({ code: 0, stdout: 'waits\ndone\n' })
    // Also when it has ended.
    expect(await start('--attach', job).ended).toMatchObject({ code: 0, stdout: 'waits\ndone\n' })
    const unknown = await start('--attach', '999999').ended
    expect([unknown.code, unknown.stderr.includes('no launch of job 999999')]).toEqual([2, true])
  })

  needs(...slurmNeeds)('a signal leaves the job, and says how to come back', async () => {
    const { folder, start } = createLauncher(await slurm())
    const first = start('--time', '10', script, 'go')
    await first.seen('waits')
    first.child.kill('SIGTERM')
    const end = await first.ended
    const [, job = ''] = /attach to it with: npx tutti launch --attach (\d+)/.exec(end.stderr) ?? []
    expect([end.code, await queue()]).toEqual([143, 'RUNNING\n'])
    const second = start('--attach', job, '--cancel-on-signal')
    await second.seen('waits')
    second.child.kill('SIGINT')
    expect((await second.ended).code).toBe(130)
    await expect.poll(queue).toBe('')
    writeFileSync(join(folder, 'go'), '')
  })

  needs(...slurmNeeds, requireCommand('script'))(
    'Ctrl-C in a terminal asks whether to leave the job or to cancel it',
    async () => {
      const { startInTerminal } = createLauncher(await slurm())
      const first = startInTerminal('--time', '10', script, 'never')
      await first.seen('waits')
      await first.seen('runs on n1')
      first.child.stdin?.write('\x03')
      await first.seen('detach, or cancel it?')
      first.child.stdin?.write('d\n')
      const end = await first.ended
      const [, job = ''] =
        /attach to it with: npx tutti launch --attach (\d+)/.exec(end.stdout) ?? []
      expect([end.code, await queue()]).toEqual([130, 'RUNNING\n'])
      const second = startInTerminal('--attach', job)
      await second.seen('waits')
      second.child.stdin?.write('\x03')
      await second.seen('detach, or cancel it?')
      // A second one is an answer as well.
      second.child.stdin?.write('\x03')
      expect((await second.ended).code).toBe(130)
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds, requireCommand('script'))(
    'a job that ends before Ctrl-C was answered ends the launcher, with its exit code',
    async () => {
      const { folder, startInTerminal } = createLauncher(await slurm())
      const launch = startInTerminal('--time', '10', script, 'go')
      await launch.seen('waits')
      launch.child.stdin?.write('\x03')
      await launch.seen('detach, or cancel it?')
      writeFileSync(join(folder, 'go'), '')
      expect((await launch.ended).code).toBe(0)
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'a launch is recorded with its job, and goes on with tutti resume',
    async () => {
      const { folder, start, startOther } = createLauncher(await slurm())
      const file = join(folder.replaceAll(/[ ']/g, '.'), 'go')
      mkdirSync(dirname(file))
      onTestFinished(() => rmSync(dirname(file), { recursive: true }))
      const options = ['--nodes', '2', '--time', '10', '--partition', 'main']
      const first = await start(...options, scriptFile('resumable-script'), file).ended
      const record = toldRecord(first.stderr)
      expect(first.code).toBe(1)
      const [line = ''] = readFileSync(record, 'utf8').split('\n')
      const { session_id, attributes } = JSON.parse(line) as Record<string, unknown>
      expect(attributes).toMatchObject({
        job_id: expect.stringMatching(/^\d+$/) as unknown,
        partition: 'main',
        nodes: ['n1', 'n2'],
        time_limit_seconds: 600,
        queue_wait_seconds: expect.any(Number) as unknown,
      })
      expect(existsSync(join(folder, 'telemetry', `${String(session_id)}.launch`))).toBe(true)
      writeFileSync(file, '')
      const again = await startOther('resume', record).ended
      expect([again.code, again.stderr]).toEqual([0, expect.not.stringContaining('resume')])
      expect(again.stderr).toMatch(/^skipping 1 of 2 recorded tasks; 1 run again: 1 failed$/m)
      expect(readFileSync(`${file}.first`, 'utf8')).toBe('ran\n')
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('row 101: a job that is canceled is a lost allocation, exit 3', async () => {
    const cluster = await slurm()
    const { start } = createLauncher(cluster)
    const launch = start('--time', '10', script, 'never')
    await launch.seen('waits')
    await cluster.run('scancel', '--user=root')
    const end = await launch.ended
    expect(end.code).toBe(3)
    expect(end.stderr).toContain('AllocationLostError')
    expect(end.stderr).toContain('CANCELLED')
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('a script that is killed ends its job with 128 and the signal', async () => {
    const cluster = await slurm()
    const { start } = createLauncher(cluster)
    const launch = start('--time', '10', script, 'never')
    await launch.seen('waits')
    const step = ['--overlap', '--jobid', (await cluster.run('squeue', '-h', '-o', '%i')).trim()]
    // The job may end before the step that ends it has reported its exit.
    const kill = ['pkill', '-KILL', '-f', 'waiting-script.ts never']
    await cluster.run('srun', ...step, ...kill).catch(() => {})
    expect((await launch.ended).code).toBe(137)
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    'inside, a launcher that is killed takes its script along; the allocation stays',
    async () => {
      const cluster = await slurm()
      const { run, env } = cluster
      const hold = ['--parsable', '-N2', '--exclusive', '--mem=0', '-t', '10', '-o', '/dev/null']
      const job = (await run('sbatch', ...hold, '--wrap', 'sleep 100000')).trim()
      await expect.poll(queue).toBe('RUNNING\n')
      const { folder, start } = createLauncher({ env: { ...env, SLURM_JOB_ID: job } })
      const isRunning = (file: string): boolean => processesOf(join(folder, file)).length > 0
      for (const where of [[], ['--driver', 'here']]) {
        const file = `never${where.length}`
        const launch = start(...where, script, join(folder, file))
        await launch.seen('waits')
        expect(isRunning(file)).toBe(true)
        launch.child.kill('SIGKILL')
        await expect.poll(() => isRunning(file)).toBe(false)
      }
      const steps = (): Promise<string> => run('squeue', '-h', '-s', '-j', job, '-o', '%i')
      await expect.poll(steps).toBe(`${job}.batch\n`)
      await run('scancel', job)
      await expect.poll(queue).toBe('')
    },
  )
})
