import {
  appendFileSync,
  chmodSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { SlurmCommands } from '../../../src/hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../../../src/hpc/slurm/slurm-job.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { needs } from '../../require.ts'
import { sharedSlurm, slurmNeeds } from '../slurm.ts'

/** A `squeue` that prints a file, and notes each call. */
function fakeQueue(answer: string): {
  readonly commands: SlurmCommands
  readonly calls: () => number
} {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-queue-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const [program, log] = [join(folder, 'squeue'), join(folder, 'log')]
  appendFileSync(log, '')
  writeFileSync(join(folder, 'answer'), answer)
  writeFileSync(program, `#!/bin/sh\necho "$@" >> ${log}\ncat ${folder}/answer\n`)
  chmodSync(program, 0o755)
  const commands = new SlurmCommands({ env: { PATH: `${folder}:/usr/bin:/bin` } })
  return { commands, calls: () => readFileSync(log, 'utf8').split('\n').length - 1 }
}

const line = '7|RUNNING|None|2026-11-15T23:29:30|2026-11-15T23:29:31|N/A|UNLIMITED|main|n1\n'

describe('a job of Slurm', () => {
  const slurm = sharedSlurm()

  it('a job of Slurm is polled once in ten seconds, and immediately after a change', async () => {
    const { commands, calls } = fakeQueue(line)
    const clock = new ManualClock()
    const job = new SlurmJob('7', commands, clock)
    await Promise.all([job.report(), job.report()])
    await clock.advance(9_999)
    expect(await job.report()).toMatchObject({ state: 'RUNNING', nodes: ['n1'] })
    expect(calls()).toBe(1)
    await job.report({ isChanged: true })
    expect(calls()).toBe(2)
    await clock.advance(10_000)
    await job.report()
    expect(calls()).toBe(3)
  })

  it('row 101: garbage instead of a job is an error that shows it', async () => {
    const { commands } = fakeQueue('Segmentation fault\n')
    const job = new SlurmJob('7', commands, new ManualClock())
    await expect(job.report()).rejects.toMatchObject({
      name: 'SchedulerError',
      code: 'SchedulerOutputError',
      message: expect.stringContaining('Segmentation fault') as unknown,
    })
  })

  needs(...slurmNeeds)(
    'a job of Slurm waits, runs and ends; a job that is not there is null',
    async () => {
      const { run, env } = await slurm()
      const commands = new SlurmCommands({ env })
      const options = ['--parsable', '-H', '-t', '5', '-o', '/dev/null', '--wrap', 'sleep 1000']
      const id = (await run('sbatch', ...options)).trim()
      const job = new SlurmJob(id, commands, systemClock)
      expect(await job.report()).toMatchObject({ id, state: 'PENDING', reason: 'JobHeldUser' })
      await run('scontrol', 'release', id)
      const now = async (): Promise<string | undefined> =>
        (await job.report({ isChanged: true }))?.state
      await expect.poll(now).toBe('RUNNING')
      await job.cancel()
      await expect.poll(now).toBe('CANCELLED')
      await job.cancel()
      expect(await new SlurmJob('999999', commands, systemClock).report()).toBeNull()
    },
  )
})
