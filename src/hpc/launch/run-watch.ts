/** Distinguishes the runs of one job, which Slurm may requeue and start again. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { type JobReport, neverStarts, phaseOf } from '../slurm/job-report.ts'
import { isUnknownJob, isSilence } from '../slurm/slurm-commands.ts'
import type { SlurmJob } from '../slurm/slurm-job.ts'
import { endByFiles, type LaunchEnd, lostEnd, exitOf } from './job-end.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** Displays a launch to the user who follows it. */
export interface LaunchView {
  /** Output of the script, as it arrives. */
  stdout(chunk: Buffer): void
  stderr(chunk: Buffer): void
  /** The state of the job; `null` once its output is visible. */
  readonly status: (line: string | null) => void
  /** A message for users about what happened to the job. */
  readonly notice: (line: string) => void
  /** The job was requeued: the end of the previous run's output is no longer valid. */
  readonly putBack?: (() => void) | undefined
  /** A run of the job has started on these nodes. Slurm is asked for them only if this is set. */
  readonly begun?: ((jobId: string, nodes: readonly string[]) => void) | undefined
}

/** The time between questions about a job that is ending, and how long to keep asking. */
const endingMs = 1000
const maxEndMs = 60_000
/** States of a job that was not ended by its script. */
const lostStates = /^(?:CANCELLED|TIMEOUT|DEADLINE|PREEMPTED|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)$/

export class RunWatch {
  readonly #job: SlurmJob
  readonly #folder: LaunchFolder
  readonly #view: LaunchView
  /** How many runs had ended when Slurm requeued the job. */
  #oldRuns = 0
  /** The number of runs whose start was reported. */
  #shownRuns = 0
  /** The latest report, and the number of runs when it was requested. */
  #latest: { readonly report: JobReport | null; readonly runs: number } | null = null

  constructor(job: SlurmJob, folder: LaunchFolder, view: LaunchView) {
    this.#job = job
    this.#folder = folder
    this.#view = view
  }

  /** Whether a run has started and was not requeued. */
  get isRunning(): boolean {
    return this.#folder.runs > this.#oldRuns
  }

  /** Reports the start of each run once. */
  async tellBegin(): Promise<void> {
    const { begun } = this.#view
    if (begun === undefined || !this.isRunning || this.#shownRuns === this.#folder.runs) return
    this.#shownRuns = this.#folder.runs
    const report = await this.#job.report({ isChanged: true }).catch(() => null)
    if (report !== null && phaseOf(report) === 'running') begun(this.#job.id, report.nodes)
  }

  /** The exit code of the current run; `null` while it runs. */
  exitCode(): number | null {
    return this.isRunning ? this.#folder.exitCode() : null
  }

  /** Shows why the job waits. Resolves with `undefined` if Slurm does not answer. */
  async report(): Promise<JobReport | null | undefined> {
    const { runs } = this.#folder
    const report = await this.#job.report().catch(() => undefined)
    if (report === undefined) return undefined
    if (this.#latest?.report !== report) this.#latest = { report, runs }
    if (report === null || phaseOf(report) !== 'waiting') return report
    // A run may have started since the report was requested.
    if (this.#latest.runs < this.#folder.runs) return report
    if (this.isRunning) this.#putBack(runs)
    await showWaiting(report, this.#job, this.#view.status)
    return report
  }

  /**
   * Finds out how a script ended that may have been ended from outside. `null` if the job was
   * requeued, or if the signal was aborted. Asks Slurm until it answers, because the job may be
   * about to be requeued.
   */
  async judge(code: number, clock: Clock, signal: AbortSignal): Promise<LaunchEnd | null> {
    const { runs } = this.#folder
    let untilMs = clock.monotonicMs() + maxEndMs
    while (!signal.aborted) {
      try {
        const report = await this.#job.report({ isChanged: true })
        if (report === null) return this.#judgeByFiles(code)
        this.#latest = { report, runs }
        if (phaseOf(report) === 'waiting' || this.#folder.runs > runs) {
          this.#putBack(runs)
          return null
        }
        const end = await this.#judgeByState(report, code)
        if (end !== null) return end
      } catch (error) {
        if (signal.aborted) return null
        this.#view.status(
          `job ${this.#job.id} has ended, but Slurm does not report how: ${messageOf(error)}`,
        )
        if (isSilence(error)) untilMs = clock.monotonicMs() + maxEndMs
      }
      // Slurm has announced that it requeues the job, which may take long to end.
      const isOver = clock.monotonicMs() >= untilMs && this.#folder.lostState !== 'REQUEUED'
      if (isOver) return this.#judgeByFiles(code)
      await sleep(clock, endingMs, { signal }).catch(() => {})
    }
    return null
  }

  /** `null` while the job is ending. Rejects if Slurm does not answer. */
  async #judgeByState(report: JobReport, code: number): Promise<LaunchEnd | null> {
    const job = { jobId: this.#job.id, folder: this.#folder }
    if (lostStates.test(report.state)) return lostEnd(job, report, code)
    if (phaseOf(report) !== 'ended') return null
    const isPreempted = await this.#job.isPreempted().catch((error: unknown) => {
      if (isUnknownJob(error)) return false
      throw error
    })
    if (!isPreempted) return exitOf(code, report.state)
    return lostEnd(job, { ...report, state: 'PREEMPTED', reason: 'None' }, code)
  }

  /** Used if Slurm has forgotten the job, or if its answers cannot be interpreted. */
  #judgeByFiles(code: number): LaunchEnd {
    const found = endByFiles(this.#folder)
    const job = { jobId: this.#job.id, folder: this.#folder }
    return found === null ? exitOf(code) : lostEnd(job, found, code)
  }

  #putBack(runs: number): void {
    this.#oldRuns = runs
    this.#view.putBack?.()
    this.#view.notice(`job ${this.#job.id} was put back into the queue and will start again`)
  }
}

/** Shows why a job waits. Cancels a job that would wait forever, and throws. */
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
      hint: `It was canceled. ${await job.nodesHint(partition)}`,
    })
  }
  if (phaseOf(report) !== 'waiting') return
  const when =
    startsAt === null ? '' : `, expected ${new Date(startsAt * 1000).toLocaleString('sv')}`
  show(`job ${id}: ${state.toLowerCase()} (${reason})${when}`)
}
