/** Follows a script that was submitted as a Slurm job until its end. */

import type { Clock } from '../../foundation/clock.ts'
import { poll } from '../../runtime/retry.ts'
import { phaseOf } from '../slurm/job-report.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { endByFiles, type LaunchEnd, lostEnd, exitOf } from './job-end.ts'
import { FollowedFile, type LaunchFolder } from './launch-folder.ts'
import { type LaunchView, RunWatch } from './run-watch.ts'

/** Files are checked often and Slurm rarely: output appears as soon as the script starts. */
const pollMs = 100
/** How long the last files of an ended job may take to become visible here. */
const settleMs = 5000

/** Exit codes from here on mean a signal, which Slurm may have sent. */
const firstSignal = 128

export interface FollowOptions {
  readonly jobId: string
  readonly folder: LaunchFolder
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly view: LaunchView
  /** Stops following; the job continues. */
  readonly signal: AbortSignal
}

/**
 * Resolves with the script's exit code, or with `null` if the signal was aborted first. Rejects
 * with `AllocationLostError` if the end of the job ended the script.
 */
export async function followLaunch(options: FollowOptions): Promise<number | null> {
  const end = await followJob(options)
  if (end === null) return null
  if (end.lost !== null) throw end.lost
  return end.code
}

/** Resolves with `null` if the signal was aborted first. */
export async function followJob(options: FollowOptions): Promise<LaunchEnd | null> {
  const { jobId, folder, commands, clock, view, signal } = options
  const job = new SlurmJob(jobId, commands.endedBy(signal), clock)
  const watch = new RunWatch(job, folder, view)
  const stdout = new FollowedFile(folder.file('stdout'))
  const stderr = new FollowedFile(folder.file('stderr'))
  let endedMs: number | null = null
  const look = async (): Promise<LaunchEnd | undefined> => {
    // The exit code is read first, so that the output read after it is complete.
    const code = watch.exitCode()
    const [out, error] = [stdout.read(), stderr.read()]
    if (watch.isRunning) view.status(null)
    await watch.tellBegin()
    if (out.length > 0) view.stdout(out)
    if (error.length > 0) view.stderr(error)
    if (code !== null) {
      const isOwn = code < firstSignal && folder.endOf(code) === 'own'
      const end = isOwn ? exitOf(code) : await watch.judge(code, clock, signal)
      if (end !== null) return end
    }
    const report = await watch.report()
    const isRunning = report === undefined || (report !== null && phaseOf(report) !== 'ended')
    if (isRunning) return undefined
    endedMs ??= clock.monotonicMs()
    const isSettled = clock.monotonicMs() - endedMs >= settleMs
    return isSettled ? lostEnd(options, report ?? endByFiles(folder), null) : undefined
  }
  return (await poll({ delayMs: pollMs }, look, { clock, signal })) ?? null
}
