/** Commands on the first node of a job that is there already. */

import type { Clock } from '../../foundation/clock.ts'
import { phaseOf } from '../slurm/job-report.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'

/**
 * The command that runs another one on the first node of the job, where this machine is none of its
 * nodes: a shell of `salloc` on a login node.
 */
export async function onFirstNode(
  jobId: string,
  command: readonly string[],
  commands: SlurmCommands,
  clock: Clock,
): Promise<readonly string[]> {
  const report = await new SlurmJob(jobId, commands, clock).report()
  const here = process.env['SLURMD_NODENAME'] ?? ''
  if (report === null || phaseOf(report) !== 'running' || report.nodes.includes(here)) {
    return command
  }
  const [first = ''] = report.nodes
  const step = ['--overlap', '--mem=0', '--mpi=none', '--cpu-bind=none', '--quiet']
  return ['srun', `--jobid=${jobId}`, '-w', first, '-N1', '-n1', ...step, ...command]
}
