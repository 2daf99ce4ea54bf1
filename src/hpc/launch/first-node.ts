/** Runs commands on the first node of an existing job. */

import type { Clock } from '../../foundation/clock.ts'
import { phaseOf } from '../slurm/job-report.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { toCacheGuard } from './module-cache.ts'

/** A command, changed if it has to run on another machine. */
export interface PlacedCommand {
  readonly words: readonly string[]
  /** Sends SIGTERM to the command there; `null` if it is a child of this process. */
  readonly stop: readonly string[] | null
}

/**
 * Runs a command on the first node of the job if this machine is not one of its nodes, as in a
 * shell of `salloc` on a login node. `srun` forwards SIGINT, but kills the command on SIGTERM: the
 * file holds the command's process id, so that it can get a SIGTERM that it can handle.
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
