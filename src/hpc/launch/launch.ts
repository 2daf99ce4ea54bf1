/** Submits a script as a job of Slurm, and follows it to its end. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { type JobReport, neverStarts, phaseOf } from '../slurm/job-report.ts'
import { type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { FollowedFile, type LaunchFolder } from './launch-folder.ts'

/** What a follower shows. */
export interface LaunchView {
  /** Output of the script, as it comes. */
  stdout(chunk: Buffer): void
  stderr(chunk: Buffer): void
  /** What the job is doing; `null` once its output speaks for itself. */
  readonly status: (line: string | null) => void
}

/** Files are asked often, Slurm seldom: a launch begins to show at once when it begins. */
const pollMs = 100
/** How long the last files of a job that has ended may take to be seen from here. */
const settleMs = 5000

/** Exit codes from here on tell of a signal, which may be Slurm's. */
const firstSignal = 128
/** Between questions about a job that is ending, and how long that may take. */
const endingMs = 1000
const longestEndMs = 60_000
/** States of a job that the script did not end. */
const lostStates = /^(?:CANCELLED|TIMEOUT|DEADLINE|PREEMPTED|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)$/

/** Resolves with the job's id. */
export async function submitBatch(
  commands: SlurmCommands,
  options: readonly string[],
  folder: LaunchFolder,
): Promise<string> {
  const output = await commands.submit(...options, folder.file('script'))
  // A federation adds the name of the cluster.
  const id = /^(\d+)(?:;\S+)?$/.exec(output.trim().split('\n').at(-1) ?? '')?.[1]
  if (id === undefined) throw unexpectedOutput('sbatch --parsable', output)
  return id
}

export interface FollowOptions {
  readonly jobId: string
  readonly folder: LaunchFolder
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly view: LaunchView
  /** Ends the following, not the job. */
  readonly signal: AbortSignal
}

/**
 * Resolves with the script's exit code, or with `null` when the signal has ended it. Rejects with
 * `AllocationLostError` when the job has ended and the script has not.
 */
export async function followLaunch(options: FollowOptions): Promise<number | null> {
  const { jobId, folder, commands, clock, view, signal } = options
  const job = new SlurmJob(jobId, commands, clock)
  const stdout = new FollowedFile(folder.file('stdout'))
  const stderr = new FollowedFile(folder.file('stderr'))
  let endedMs: number | null = null
  while (!signal.aborted) {
    // First the code: what is read after it is all.
    const code = folder.exitCode()
    const [out, error] = [stdout.read(), stderr.read()]
    if (folder.hasStarted) view.status(null)
    if (out.length > 0) view.stdout(out)
    if (error.length > 0) view.stderr(error)
    if (code !== null) {
      const isOwn = code < firstSignal && !folder.hasEnded
      return isOwn ? code : await expectOwnEnd(code, job, clock)
    }
    const report = await job.report().catch(() => undefined)
    if (report !== undefined) {
      const phase = report === null ? 'ended' : phaseOf(report)
      if (report !== null && !folder.hasStarted) await showWaiting(report, job, view.status)
      if (phase === 'ended') {
        endedMs ??= clock.monotonicMs()
        if (clock.monotonicMs() - endedMs >= settleMs) throw lostError(jobId, report)
      }
    }
    await sleep(clock, pollMs)
  }
  return null
}

/** The code of a script that was ended, unless that came with its job's end. */
async function expectOwnEnd(code: number, job: SlurmJob, clock: Clock): Promise<number> {
  const untilMs = clock.monotonicMs() + longestEndMs
  while (clock.monotonicMs() < untilMs) {
    const report = await job.report({ isChanged: true }).catch(() => null)
    if (report === null) return code
    if (lostStates.test(report.state)) throw lostError(job.id, report)
    if (phaseOf(report) === 'ended') return code
    await sleep(clock, endingMs)
  }
  return code
}

/** Shows why a job waits. Cancels one that would wait for ever, and throws. */
export async function showWaiting(
  report: JobReport,
  job: SlurmJob,
  show: (line: string) => void,
): Promise<void> {
  const { id, state, reason, startsAt, partition } = report
  if (neverStarts(report)) {
    await job.cancel()
    throw new BackendError(`job ${id} would never start in partition ${partition}: ${reason}`, {
      code: 'AllocationRefusedError',
      hint: 'It was canceled. Ask for less, or for another partition.',
    })
  }
  if (phaseOf(report) !== 'waiting') return
  const when =
    startsAt === null ? '' : `, expected ${new Date(startsAt * 1000).toLocaleString('sv')}`
  show(`job ${id}: ${state.toLowerCase()} (${reason})${when}`)
}

/** `null`: Slurm does not know the job any more. */
export function lostError(jobId: string, report: JobReport | null): BackendError {
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  return new BackendError(`AllocationLostError: job ${jobId} is ${state}${why}`, {
    code: 'AllocationLostError',
  })
}
