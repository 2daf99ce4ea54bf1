import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs } from '../require.ts'
import { createLauncher, scriptFile, toldRecord } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const script = scriptFile('long-script')

describe('a launched job that Slurm puts back into the queue', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')
  const jobId = async (): Promise<string> =>
    (await (await slurm()).run('squeue', '-h', '-o', '%i')).trim()

  /**
   * Slurm lets two minutes pass before such a job may begin. Two seconds have to: Slurm tells the
   * credential of the second run from that of the first, which it has revoked, by the second.
   */
  async function beginNow(job: string, ...changes: readonly string[]): Promise<void> {
    const { run } = await slurm()
    await expect.poll(() => run('squeue', '-h', '-j', job, '-o', '%T')).toBe('PENDING\n')
    const fromMs = Date.now() + 2000
    await expect.poll(() => Date.now()).toBeGreaterThan(fromMs)
    await run('scontrol', 'update', `JobId=${job}`, 'StartTime=now', ...changes)
  }

  needs(...slurmNeeds)(
    'a requeued job continues with its record, and is followed to its end',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--time', '10', script, folder)
      await launch.seen('waits')
      const job = await jobId()
      await run('scontrol', 'requeue', job)
      await launch.seen(`job ${job} was put back into the queue and will start again`)
      writeFileSync(join(folder, 'go'), '')
      await beginNow(job)
      const end = await launch.ended
      expect(end).toMatchObject({ code: 0, stdout: 'waits\nwaits\n' })
      const [, record = ''] =
        /was put back into the queue, and continues (.*)/.exec(end.stderr) ?? []
      expect(readFileSync(record, 'utf8')).toContain('"SessionEnded"')
      expect(end.stderr).not.toContain('npx tutti resume')
      expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\nsecond\n')
      const status = await startOther('--json', 'status').ended
      const found = JSON.parse(status.stdout) as { readonly files: readonly string[] }
      expect(found).toMatchObject({ state: 'ended', tasks: { completed: 2, canceled: 0 } })
      expect(found.files).toHaveLength(2)
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('while Slurm is silent: that is no end of it or of its chain', async () => {
    const { env, run } = await slurm()
    const { folder, start } = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    // For the launcher only; a slurmctld that is stopped makes this a test of minutes.
    const lines = [
      '#!/bin/sh',
      '[ ! -e silent ] || { echo "Unable to contact slurm controller" >&2; exit 1; }',
      'PATH="${PATH#bin:}" exec squeue "$@"',
    ]
    mkdirSync(join(folder, 'bin'))
    writeFileSync(join(folder, 'bin/squeue'), `${lines.join('\n')}\n`, { mode: 0o755 })
    const launch = start('--chain', '2', '--time', '10', script, folder)
    await launch.seen('waits')
    const job = (await run('squeue', '-h', '-t', 'RUNNING', '-o', '%i')).trim()
    writeFileSync(join(folder, 'silent'), '')
    await run('scontrol', 'requeue', job)
    await launch.seen(`job ${job} has ended, but Slurm does not report how: `)
    rmSync(join(folder, 'silent'))
    await launch.seen(`job ${job} was put back into the queue and will start again`)
    writeFileSync(join(folder, 'go'), '')
    await beginNow(job)
    const end = await launch.ended
    expect(end).toMatchObject({ code: 0, stdout: 'waits\nwaits\n' })
    expect(end.stderr).not.toContain('npx tutti resume')
    expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\nsecond\n')
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    'a requeued job continues elsewhere with the record of a killed run',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const { stdout } = await start('--detach', '--time', '10', script, folder).ended
      const job = stdout.trim()
      await start('--attach', job).seen('waits')
      // The lock of the record belongs to a process on another node, of the same job.
      await run('scancel', '--signal=KILL', '--full', job)
      await expect.poll(queue).toBe('')
      await run('scontrol', 'requeue', job)
      writeFileSync(join(folder, 'go'), '')
      await beginNow(job, 'ExcNodeList=n1')
      const end = await start('--attach', job).ended
      expect(end).toMatchObject({ code: 0, stdout: 'waits\nwaits\n' })
      expect(end.stderr).toContain('and continues ')
      expect(readFileSync(join(folder, 'ran'), 'utf8')).toBe('first\nsecond\n')
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'a requeued job that is canceled: the launcher says how to resume',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const launch = start('--time', '10', script, folder)
      await launch.seen('waits')
      const job = await jobId()
      await run('scontrol', 'requeue', job)
      await launch.seen('was put back into the queue and will start again')
      await run('scancel', job)
      const end = await launch.ended
      expect([end.code, end.stderr]).toEqual([
        3,
        expect.stringMatching(/AllocationLost.*CANCELLED/),
      ])
      expect(toldRecord(end.stderr)).toMatch(/\.jsonl$/)
      expect(end.stderr.match(/^resume {2}/gm)).toHaveLength(1)
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'a requeued job begins anew where nothing was recorded, and keeps its output',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const launch = start('--time', '10', scriptFile('waiting-script'), 'go')
      await launch.seen('waits')
      const job = await jobId()
      await run('scontrol', 'requeue', job)
      await launch.seen('was put back into the queue')
      writeFileSync(join(folder, 'go'), '')
      await beginNow(job)
      const end = await launch.ended
      expect(end).toMatchObject({ code: 0, stdout: 'waits\nwaits\ndone\n' })
      expect(end.stderr).toContain('starts from the beginning: nothing was recorded')
      await expect.poll(queue).toBe('')
    },
  )
})
