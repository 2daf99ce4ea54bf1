/** Runs commands on the first node of an existing job. */

import type { Clock } from '../../foundation/clock.ts'
import { phaseOf } from '../slurm/slurm-output.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { toCacheGuard } from './module-cache.ts'

/** A command, wrapped in `srun` if it has to run on another machine. */
export interface PlacedCommand {
  readonly words: readonly string[]
  /**
   * A command that sends SIGTERM to this command; `null` if this command is a child of this
   * process.
   */
  readonly stop: readonly string[] | null
}

/**
 * Makes a command run on the first node of a running job, unless this machine is one of its nodes.
 * `srun` kills the command at SIGTERM, so `stop` sends SIGTERM to the process whose id is in
 * `pidFile`.
 */
export async function toFirstNodeCommand(
  jobId: string,
  command: readonly string[],
  { pidFile, moduleCache }: { readonly pidFile: string; readonly moduleCache?: string },
  commands: SlurmCommands,
  clock: Clock,
): Promise<PlacedCommand> {
  const report = await new SlurmJob(jobId, commands, clock).report()
  const thisNode = process.env['SLURMD_NODENAME'] ?? ''
  if (report === null || phaseOf(report) !== 'running' || report.nodes.includes(thisNode)) {
    return { words: command, stop: null }
  }
  const [first = ''] = report.nodes
  const stepOptions = ['--overlap', '--mem=0', '--mpi=none', '--cpu-bind=none', '--quiet']
  const step = ['srun', `--jobid=${jobId}`, '-w', first, '-N1', '-n1', ...stepOptions]
  const script = `echo "$$" > "$0"; ${toCacheGuard(moduleCache)}; exec "$@"`
  const wrapped = ['sh', '-c', script, pidFile, ...command]
  return {
    words: [...step, '--disable-status', ...wrapped],
    stop: [...step, '--input=none', 'sh', '-c', 'kill -TERM "$(cat "$0")"', pidFile],
  }
}
