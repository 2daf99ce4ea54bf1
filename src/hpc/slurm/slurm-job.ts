/** A Slurm job, queried at a rate that does not overload the controller. */

import type { Clock } from '../../foundation/clock.ts'
import { jobFormat, type JobReport, parseClusterName, parseFields } from './slurm-output.ts'
import { parseJobLine, phaseOf } from './slurm-output.ts'
import { isUnknownJob, type SlurmCommands, unexpectedOutput } from './slurm-commands.ts'

const reportLifetimeMs = 10_000

export class SlurmJob {
  readonly id: string
  readonly #commands: SlurmCommands
  readonly #clock: Clock
  #latest: { readonly report: Promise<JobReport | null>; readonly queriedMs: number } | null = null

  constructor(id: string, commands: SlurmCommands, clock: Clock) {
    this.id = id
    this.#commands = commands
    this.#clock = clock
  }

  /**
   * Returns Slurm's report of the job; `null` if Slurm has forgotten the job. The report is cached
   * for 10 s, unless `isChanged` is set.
   */
  report({ isChanged = false } = {}): Promise<JobReport | null> {
    const nowMs = this.#clock.monotonicMs()
    const latest = this.#latest
    if (latest !== null && !isChanged && nowMs - latest.queriedMs < reportLifetimeMs)
      return latest.report
    const report = this.#queryReport()
    this.#latest = { report, queriedMs: nowMs }
    return report
  }

  nodesHint(partition: string): Promise<string> {
    return this.#commands.nodesHint(partition)
  }

  /** Cancels the job. May also be called if the job has ended. */
  async cancel(): Promise<void> {
    await this.#commands.run('scancel', this.id)
  }

  /** Whether the job is being preempted. Its state does not show this while a `GraceTime` lasts. */
  async isPreempted(): Promise<boolean> {
    const output = await this.#commands.query('scontrol', 'show', 'job', this.id)
    const fields = parseFields(output)
    const [started = '', chosen = ''] = [fields.get('StartTime'), fields.get('PreemptTime')]
    // An earlier preemption belongs to a previous run of the job.
    return /^\d/.test(chosen) && chosen >= started
  }

  async #queryReport(): Promise<JobReport | null> {
    const args = ['-h', '-j', this.id, '--states=all', '-o', jobFormat]
    let output: string
    try {
      output = await this.#commands.query('squeue', ...args)
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

/** Whether the job has ended; `false` if that is unknown, as for a job of another cluster. */
export async function hasJobEnded(
  { id, cluster }: { readonly id: string; readonly cluster: string | null },
  commands: SlurmCommands,
  clock: Clock,
): Promise<boolean> {
  try {
    const configured = parseClusterName(await commands.query('scontrol', 'show', 'config'))
    if (cluster !== null && cluster !== configured) return false
    const report = await new SlurmJob(id, commands, clock).report()
    return report === null || phaseOf(report) === 'ended'
  } catch {
    return false
  }
}
