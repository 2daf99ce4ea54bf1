/** The script of a launch as a child of the launcher: on this machine, or on the first node. */

import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import { phaseOf } from '../slurm/job-report.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'

export interface ScriptProcess {
  /** The exit code; 128 and its number for a signal. */
  readonly ended: Promise<number>
  kill(signal: NodeJS.Signals): void
}

/** With the standard streams of this process. */
export function startScript(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
): ScriptProcess {
  const [program = '', ...args] = command
  const child = spawn(program, args, { stdio: 'inherit', env: { ...process.env, ...env } })
  const ended = new Promise<number>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) =>
      resolve(signal === null ? (code ?? 1) : 128 + (constants.signals[signal] ?? 0)),
    )
  })
  return { ended, kill: (signal) => void child.kill(signal) }
}

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
