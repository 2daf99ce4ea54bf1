/** Commands on the first node of a job that is there already. */

import type { Clock } from '../../foundation/clock.ts'
import { phaseOf } from '../slurm/job-report.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { toCacheGuard } from './module-cache.ts'

/** How a command is run where it belongs. */
export interface PlacedCommand {
  readonly words: readonly string[]
  /** Sends it SIGTERM there; `null` for a child of this process. */
  readonly stop: readonly string[] | null
}

/**
 * The command that runs another one on the first node of the job, where this machine is none of its
 * nodes: a shell of `salloc` on a login node. `srun` passes SIGINT on to it, and kills it on
 * SIGTERM: the file has its process id, for a signal that it can handle.
 */
export async function onFirstNode(
  jobId: string,
  command: readonly string[],
  { pidFile, moduleCache }: { readonly pidFile: string; readonly moduleCache?: string },
  commands: SlurmCommands,
  clock: Clock,
): Promise<PlacedCommand> {
  const report = await new SlurmJob(jobId, commands, clock).report()
  const here = process.env['SLURMD_NODENAME'] ?? ''
  if (report === null || phaseOf(report) !== 'running' || report.nodes.includes(here)) {
    return { words: command, stop: null }
  }
  const [first = ''] = report.nodes
  const step = ['--overlap', '--mem=0', '--mpi=none', '--cpu-bind=none', '--quiet']
  const own = ['srun', `--jobid=${jobId}`, '-w', first, '-N1', '-n1', ...step]
  const script = `echo "$$" > "$0"; ${toCacheGuard(moduleCache)}; exec "$@"`
  const named = ['sh', '-c', script, pidFile, ...command]
  return {
    words: [...own, '--disable-status', ...named],
    stop: [...own, '--input=none', 'sh', '-c', 'kill -TERM "$(cat "$0")"', pidFile],
  }
}
