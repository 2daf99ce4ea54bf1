/**
 * Follows a script that was submitted as a Slurm job until its end. Determines how it has ended,
 * from the state of the job or from the files of its launch.
 */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { poll } from '../../runtime/retry.ts'
import { type JobReport, neverStarts, phaseOf } from '../slurm/slurm-output.ts'
import { isNoAnswer, isUnknownJob, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { GrowingFile, type LaunchFolder } from './launch-folder.ts'

/** How often the files are polled. Slurm is queried less often. */
const pollIntervalMs = 100
/** How long the last files of an ended job may take to become visible. */
const fileTimeoutMs = 5000

/** Exit codes of at least this number mean that a signal, possibly from Slurm, ended the script. */
const signalExitCodeBase = 128

export interface FollowOptions {
  readonly jobId: string
  readonly folder: LaunchFolder
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly view: LaunchView
  /** If aborted, the launcher stops following the job. The job continues. */
  readonly signal: AbortSignal
}

/** Resolves with the exit code; `null` after an abort. Rejects if the job was lost. */
export async function followLaunch(options: FollowOptions): Promise<number | null> {
  const end = await followJob(options)
  if (end === null) return null
  if (end.lost !== null) throw end.lost
  return end.code
}

/** Resolves with the end of the script; `null` if the signal was aborted before it. */
export async function followJob(options: FollowOptions): Promise<LaunchEnd | null> {
  const { jobId, folder, commands, clock, view, signal } = options
  const job = new SlurmJob(jobId, commands.withSignal(signal), clock)
  const watch = new RunWatch(job, folder, view)
  const stdout = new GrowingFile(folder.file('stdout'))
  const stderr = new GrowingFile(folder.file('stderr'))
  let endedMs: number | null = null
  const pollOnce = async (): Promise<LaunchEnd | undefined> => {
    // The exit code is read before the output. If there is one, the output is therefore complete.
    const code = watch.exitCode()
    const [out, error] = [stdout.read(), stderr.read()]
    if (watch.isRunning) view.status(null)
    await watch.reportStart()
    if (out.length > 0) view.stdout(out)
    if (error.length > 0) view.stderr(error)
    if (code !== null) {
      const isOwnExit = code < signalExitCodeBase && folder.classifyEnd(code) === 'own'
      const end = isOwnExit ? toExit(code) : await watch.findEnd(code, clock, signal)
      if (end !== null) return end
    }
    const report = await watch.report()
    const isRunning = report === undefined || (report !== null && phaseOf(report) !== 'ended')
    if (isRunning) return undefined
    endedMs ??= clock.monotonicMs()
    const isSettled = clock.monotonicMs() - endedMs >= fileTimeoutMs
    return isSettled ? toLostEnd(options, report ?? readEndFromFiles(folder), null) : undefined
  }
  return (await poll({ delayMs: pollIntervalMs }, pollOnce, { clock, signal })) ?? null
}

/** Displays the progress of a launch. */
export interface LaunchView {
  stdout(chunk: Buffer): void
  stderr(chunk: Buffer): void
  /** Shows the state of the job. `null` removes it once the script runs. */
  readonly status: (line: string | null) => void
  readonly notice: (line: string) => void
  /** Called when the job was requeued. The output of the previous run is then complete. */
  readonly onRequeued?: (() => void) | undefined
  /** Called when a run of the job has started. Slurm is asked for the nodes only if this is set. */
  readonly onRunStarted?: ((jobId: string, nodes: readonly string[]) => void) | undefined
}

const endPollMs = 1000
const endTimeoutMs = 60_000
const lostStates = /^(?:CANCELLED|TIMEOUT|DEADLINE|PREEMPTED|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)$/

/** Tracks the runs of one job, which Slurm may requeue and start again. */
class RunWatch {
  readonly #job: SlurmJob
  readonly #folder: LaunchFolder
  readonly #view: LaunchView
  /** The number of runs that had ended when Slurm requeued the job. */
  #endedRuns = 0
  #reportedRuns = 0
  /** The latest report, and the number of runs at the time of the request. */
  #latest: { readonly report: JobReport | null; readonly runs: number } | null = null

  constructor(job: SlurmJob, folder: LaunchFolder, view: LaunchView) {
    this.#job = job
    this.#folder = folder
    this.#view = view
  }

  /** Whether a run has started since the job was last requeued. */
  get isRunning(): boolean {
    return this.#folder.runs > this.#endedRuns
  }

  async reportStart(): Promise<void> {
    const { onRunStarted } = this.#view
    if (onRunStarted === undefined || !this.isRunning || this.#reportedRuns === this.#folder.runs)
      return
    this.#reportedRuns = this.#folder.runs
    const report = await this.#job.report({ isChanged: true }).catch(() => null)
    if (report !== null && phaseOf(report) === 'running') onRunStarted(this.#job.id, report.nodes)
  }

  exitCode(): number | null {
    return this.isRunning ? this.#folder.exitCode() : null
  }

  /**
   * Returns Slurm's report: `null` if Slurm has forgotten the job, `undefined` if it gives no
   * answer. Shows why a waiting job waits.
   */
  async report(): Promise<JobReport | null | undefined> {
    const { runs } = this.#folder
    const report = await this.#job.report().catch(() => undefined)
    if (report === undefined) return undefined
    if (this.#latest?.report !== report) this.#latest = { report, runs }
    if (report === null || phaseOf(report) !== 'waiting') return report
    // If a run has started since the report was requested, the report is outdated.
    if (this.#latest.runs < this.#folder.runs) return report
    if (this.isRunning) this.#noteRequeue(runs)
    await reportWaiting(report, this.#job, this.#view.status)
    return report
  }

  /**
   * Determines how the script ended. Asks Slurm until it answers, because the job may be about to
   * be requeued. Resolves with `null` if it was requeued or the signal was aborted.
   */
  async findEnd(code: number, clock: Clock, signal: AbortSignal): Promise<LaunchEnd | null> {
    const { runs } = this.#folder
    let untilMs = clock.monotonicMs() + endTimeoutMs
    while (!signal.aborted) {
      try {
        const report = await this.#job.report({ isChanged: true })
        if (report === null) return this.#findEndByFiles(code)
        this.#latest = { report, runs }
        if (phaseOf(report) === 'waiting' || this.#folder.runs > runs) {
          this.#noteRequeue(runs)
          return null
        }
        const end = await this.#findEndByState(report, code)
        if (end !== null) return end
      } catch (error) {
        if (signal.aborted) return null
        this.#view.status(
          `job ${this.#job.id} has ended, but Slurm does not report how: ${messageOf(error)}`,
        )
        if (isNoAnswer(error)) untilMs = clock.monotonicMs() + endTimeoutMs
      }
      // A job that Slurm is about to requeue may take long to end.
      const isOver = clock.monotonicMs() >= untilMs && this.#folder.lostState !== 'REQUEUED'
      if (isOver) return this.#findEndByFiles(code)
      await sleep(clock, endPollMs, { signal }).catch(() => {})
    }
    return null
  }

  /** Resolves with `null` while the job is ending. Rejects if Slurm does not answer. */
  async #findEndByState(report: JobReport, code: number): Promise<LaunchEnd | null> {
    const job = { jobId: this.#job.id, folder: this.#folder }
    if (lostStates.test(report.state)) return toLostEnd(job, report, code)
    if (phaseOf(report) !== 'ended') return null
    const isPreempted = await this.#job.isPreempted().catch((error: unknown) => {
      if (isUnknownJob(error)) return false
      throw error
    })
    if (!isPreempted) return toExit(code, report.state)
    return toLostEnd(job, { ...report, state: 'PREEMPTED', reason: 'None' }, code)
  }

  /** Finds the end in the files, if Slurm has forgotten the job or gives no usable answer. */
  #findEndByFiles(code: number): LaunchEnd {
    const found = readEndFromFiles(this.#folder)
    const job = { jobId: this.#job.id, folder: this.#folder }
    return found === null ? toExit(code) : toLostEnd(job, found, code)
  }

  #noteRequeue(runs: number): void {
    this.#endedRuns = runs
    this.#view.onRequeued?.()
    this.#view.notice(`job ${this.#job.id} was put back into the queue and will start again`)
  }
}

/** Shows why a job waits. Cancels a job that would wait forever, and then throws. */
export async function reportWaiting(
  report: JobReport,
  job: SlurmJob,
  show: (line: string) => void,
): Promise<void> {
  const { id, state, reason, startsAt, partition } = report
  if (neverStarts(report)) {
    await job.cancel()
    throw new BackendError(`job ${id} would never start in partition ${partition}: ${reason}`, {
      code: 'AllocationRefusedError',
      hint: `It was canceled. ${await job.nodesHint(partition)}`,
    })
  }
  if (phaseOf(report) !== 'waiting') return
  const startText =
    startsAt === null ? '' : `, expected ${new Date(startsAt * 1000).toLocaleString('sv')}`
  show(`job ${id}: ${state.toLowerCase()} (${reason})${startText}`)
}

export interface LaunchEnd {
  /** The script's exit code; `null` if the script was killed with the job. */
  readonly code: number | null
  /** `AllocationLostError` if the script ended because its job was ended; otherwise `null`. */
  readonly lost: BackendError | null
  /** The state that Slurm reported; `null` if Slurm was not queried or has forgotten the job. */
  readonly state: string | null
}

const toExit = (code: number, state: string | null = null): LaunchEnd => ({
  code,
  lost: null,
  state,
})

const toLostEnd = (
  { jobId, folder }: { readonly jobId: string; readonly folder: LaunchFolder },
  report: EndState | null,
  code: number | null,
): LaunchEnd => ({
  code,
  lost: toLostError(jobId, report, folder),
  state: report?.state ?? null,
})

type EndState = Pick<JobReport, 'state' | 'reason'>

/** Returns the job's state according to its log; `null` if Slurm did not end the script. */
function readEndFromFiles(folder: LaunchFolder): EndState | null {
  const { lostState: state } = folder
  if (state === null) return null
  // For REQUEUED, this is called only if Slurm has forgotten the job before it started again.
  return { state, reason: state === 'REQUEUED' ? 'forgotten by Slurm' : 'None' }
}

/** `report` is `null` if Slurm has forgotten the job. `folder` helps to explain a failed start. */
export function toLostError(
  jobId: string,
  report: EndState | null,
  folder?: LaunchFolder,
): BackendError {
  const code = 'AllocationLostError'
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  const text = `job ${jobId} is ${state}${why}`
  // A job that failed before its start probably could not open a file.
  const hasBegun = folder === undefined || folder.hasStarted || report?.state !== 'FAILED'
  if (hasBegun) return new BackendError(text, { code })
  return new BackendError(`${text}: it has not begun; its node may not see ${folder.path}`, {
    code,
    hint: 'Start it in a folder on a shared file system. For details: npx tutti launch --check',
  })
}

/** Whether the error says that a job could never start. The files of such a job can be removed. */
export const isRefusal = (error: unknown): boolean =>
  BackendError.isInstance(error) && error.code === 'AllocationRefusedError'
