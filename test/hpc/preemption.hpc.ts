import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs } from '../require.ts'
import { createLauncher, scriptFile, toldRecord } from './launcher.ts'
import { sharedSlurm, slurmNeeds, type TestSlurm } from './slurm.ts'

/** Jobs of `low` make room for those of `high`, and have this time for their end. */
async function addPartitions({ conf, run }: TestSlurm, graceSeconds: number): Promise<void> {
  const text = readFileSync(conf, 'utf8')
  const mode = 'PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n'
  writeFileSync(conf, text.replace(/^SchedulerType=/m, `${mode}SchedulerType=`))
  const common = 'Nodes=ALL MaxTime=INFINITE State=UP'
  const low = `PriorityTier=1 PreemptMode=CANCEL GraceTime=${graceSeconds}`
  appendFileSync(conf, `PartitionName=low ${common} ${low}\n`)
  appendFileSync(conf, `PartitionName=high ${common} PriorityTier=10 PreemptMode=OFF\n`)
  await run('scontrol', 'reconfigure')
  const partitions = (): Promise<string> => run('sinfo', '-h', '-o', '%R')
  await expect.poll(partitions).toContain('high')
}

describe('a job that makes room for another one', () => {
  const slurm = sharedSlurm()

  needs(...slurmNeeds)(
    'row 101: with a grace time, tasks end CANCELED as preempted, and so does the launch',
    async () => {
      const cluster = await slurm()
      await addPartitions(cluster, 120)
      const { folder, start } = createLauncher(cluster)
      const options = ['--partition', 'low', '--time', '10']
      const launch = start(...options, scriptFile('interrupted-script'), join(folder, 'never'))
      await launch.seen('waits')
      const high = ['-p', 'high', '-N4', '--exclusive', '-o', '/dev/null']
      await cluster.run('sbatch', ...high, '--wrap', 'true')
      const end = await launch.ended
      expect(end.code).toBe(3)
      expect(end.stderr).toMatch(/AllocationLostError {2}job \d+ is PREEMPTED/)
      const events = readFileSync(toldRecord(end.stderr), 'utf8')
      expect(events).toMatch(/"TaskCanceled".*AllocationLostError: PREEMPTED/)
      expect(events).toContain('"SessionEnded"')
    },
  )
})
