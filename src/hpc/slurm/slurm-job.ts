/** One Slurm job, queried by its id at a rate that does not overload the controller. */

import type { Clock } from '../../foundation/clock.ts'
import { jobFormat, type JobReport, parseClusterName, parseFields } from './job-report.ts'
import { parseJobLine, phaseOf } from './job-report.ts'
import { isUnknownJob, type SlurmCommands, unexpectedOutput } from './slurm-commands.ts'

/** How long a report is reused, unless the caller knows of a change. */
const freshMs = 10_000

export class SlurmJob {
  readonly id: string
  readonly #commands: SlurmCommands
  readonly #clock: Clock
  #latest: { readonly report: Promise<JobReport | null>; readonly askedMs: number } | null = null

  constructor(id: string, commands: SlurmCommands, clock: Clock) {
    this.id = id
    this.#commands = commands
    this.#clock = clock
  }

  /**
   * `null` if Slurm has forgotten the job, as it does some minutes after its end. Asks at most once
   * in 10 s; `isChanged` asks in any case.
   */
  report({ isChanged = false } = {}): Promise<JobReport | null> {
    const nowMs = this.#clock.monotonicMs()
    const latest = this.#latest
    if (latest !== null && !isChanged && nowMs - latest.askedMs < freshMs) return latest.report
    const report = this.#ask()
    this.#latest = { report, askedMs: nowMs }
    return report
  }

  /** For a job that cannot start: how many nodes its partition has. */
  nodesHint(partition: string): Promise<string> {
    return this.#commands.nodesHint(partition)
  }

  /** Ends the whole job. Allowed for a job that has ended. */
  async cancel(): Promise<void> {
    await this.#commands.run('scancel', this.id)
  }

  /**
   * Whether the job was preempted. Its state does not show this: with a `GraceTime`, the job
   * continues for some time and may end by itself.
   */
  async isPreempted(): Promise<boolean> {
    const output = await this.#commands.ask('scontrol', 'show', 'job', this.id)
    const fields = parseFields(output)
    const [started = '', chosen = ''] = [fields.get('StartTime'), fields.get('PreemptTime')]
    // A preemption before the start concerns an earlier run of the job.
    return /^\d/.test(chosen) && chosen >= started
  }

  async #ask(): Promise<JobReport | null> {
    const args = ['-h', '-j', this.id, '--states=all', '-o', jobFormat]
    let output: string
    try {
      output = await this.#commands.ask('squeue', ...args)
    } catch (error) {
      if (isUnknownJob(error)) return null
      throw error
    }
    const [line = ''] = output.trim().split('\n')
    if (line === '') return null
    const report = parseJobLine(line)
    if (report === null) throw unexpectedOutput(`squeue ${args.join(' ')}`, output)
    return report
  }
}

/**
 * Whether a job of the given cluster has ended. `false` if that cannot be determined: without the
 * Slurm commands, while the controller does not answer, and for a job of another cluster.
 */
export async function hasJobEnded(
  { id, cluster }: { readonly id: string; readonly cluster: string | null },
  commands: SlurmCommands,
  clock: Clock,
): Promise<boolean> {
  try {
    const configured = parseClusterName(await commands.ask('scontrol', 'show', 'config'))
    if (cluster !== null && cluster !== configured) return false
    const report = await new SlurmJob(id, commands, clock).report()
    return report === null || phaseOf(report) === 'ended'
  } catch {
    return false
  }
}
