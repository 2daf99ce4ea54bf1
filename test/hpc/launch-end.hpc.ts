import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs } from '../require.ts'
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

  needs(...slurmNeeds)(
    'row 101: a killed one is continued once Slurm says that its job has ended',
    async () => {
      const { run } = await slurm()
      const { folder, start, startOther } = createLauncher(await slurm())
      const launch = start('--time', '10', script, join(folder, 'go'))
      await launch.seen('waits')
      const job = (await run('squeue', '-h', '-o', '%i')).trim()
      // The job may end before the step that does it has told its end.
      const kill = ['pkill', '-KILL', '-f', 'interrupted-script.ts /']
      await run('srun', '--overlap', '--jobid', job, ...kill).catch(() => {})
      const end = await launch.ended
      expect(end.code).toBe(137)
      const record = toldRecord(end.stderr)
      writeFileSync(join(folder, 'go'), '')
      await expect.poll(queue).toBe('')
      expect(await startOther('resume', record).ended).toMatchObject({ code: 0 })
      await expect.poll(queue).toBe('')
    },
  )
})
