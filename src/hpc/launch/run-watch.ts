/** Tells the runs of one job apart: Slurm may put it back into the queue, and begin it again. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { type JobReport, neverStarts, phaseOf } from '../slurm/job-report.ts'
import { isForgotten, isSilence } from '../slurm/slurm-commands.ts'
import type { SlurmJob } from '../slurm/slurm-job.ts'
import { endByFiles, type LaunchEnd, lostEnd, ownEnd } from './job-end.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** What a follower shows. */
export interface LaunchView {
  /** Output of the script, as it comes. */
  stdout(chunk: Buffer): void
  stderr(chunk: Buffer): void
  /** What the job is doing; `null` once its output speaks for itself. */
  readonly status: (line: string | null) => void
  /** What has become of it, for people. */
  readonly notice: (line: string) => void
  /** What the run before has printed last does not hold any more. */
  readonly putBack?: (() => void) | undefined
  /** A run of the job has begun on these nodes. Slurm is asked for them only if it is given. */
  readonly begun?: ((jobId: string, nodes: readonly string[]) => void) | undefined
}

/** Between questions about a job that is ending, and how long that may take. */
const endingMs = 1000
const longestEndMs = 60_000
/** States of a job that the script did not end. */
const lostStates = /^(?:CANCELLED|TIMEOUT|DEADLINE|PREEMPTED|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY)$/

export class RunWatch {
  readonly #job: SlurmJob
  readonly #folder: LaunchFolder
  readonly #view: LaunchView
  /** The runs that were over when Slurm had put the job back. */
  #oldRuns = 0
  /** The runs whose beginning was told. */
  #toldRuns = 0
  /** The latest report, and the runs that had begun when it was asked for. */
  #latest: { readonly report: JobReport | null; readonly runs: number } | null = null

  constructor(job: SlurmJob, folder: LaunchFolder, view: LaunchView) {
    this.#job = job
    this.#folder = folder
    this.#view = view
  }

  /** Whether a run has begun and was not put back. */
  get isRunning(): boolean {
    return this.#folder.runs > this.#oldRuns
  }

  /** Once for each run. */
  async tellBegin(): Promise<void> {
    const { begun } = this.#view
    if (begun === undefined || !this.isRunning || this.#toldRuns === this.#folder.runs) return
    this.#toldRuns = this.#folder.runs
    const report = await this.#job.report({ isChanged: true }).catch(() => null)
    if (report !== null && phaseOf(report) === 'running') begun(this.#job.id, report.nodes)
  }

  /** Of the run that was not put back; `null` while it goes on. */
  exitCode(): number | null {
    return this.isRunning ? this.#folder.exitCode() : null
  }

  /** Shows why the job waits. `undefined` while Slurm does not answer. */
  async report(): Promise<JobReport | null | undefined> {
    const { runs } = this.#folder
    const report = await this.#job.report().catch(() => undefined)
    if (report === undefined) return undefined
    if (this.#latest?.report !== report) this.#latest = { report, runs }
    if (report === null || phaseOf(report) !== 'waiting') return report
    // It may have begun since.
    if (this.#latest.runs < this.#folder.runs) return report
    if (this.isRunning) this.#putBack(runs)
    await showWaiting(report, this.#job, this.#view.status)
    return report
  }

  /**
   * Of a script that was ended from outside. `null`: the job was put back into the queue, or the
   * signal has come. A silent Slurm is asked until it answers: the job may be on its way back.
   */
  async judge(code: number, clock: Clock, signal: AbortSignal): Promise<LaunchEnd | null> {
    const { runs } = this.#folder
    let untilMs = clock.monotonicMs() + longestEndMs
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
          `job ${this.#job.id} has ended, but Slurm does not tell how: ${messageOf(error)}`,
        )
        if (isSilence(error)) untilMs = clock.monotonicMs() + longestEndMs
      }
      // Slurm has said that it puts the job back; it may be ending for long.
      const isOver = clock.monotonicMs() >= untilMs && this.#folder.lostState !== 'REQUEUED'
      if (isOver) return this.#judgeByFiles(code)
      await sleep(clock, endingMs, { signal }).catch(() => {})
    }
    return null
  }

  /** `null` while it is ending. Rejects where Slurm does not tell. */
  async #judgeByState(report: JobReport, code: number): Promise<LaunchEnd | null> {
    const job = { jobId: this.#job.id, folder: this.#folder }
    if (lostStates.test(report.state)) return lostEnd(job, report, code)
    if (phaseOf(report) !== 'ended') return null
    const isPreempted = await this.#job.isPreempted().catch((error: unknown) => {
      if (isForgotten(error)) return false
      throw error
    })
    if (!isPreempted) return ownEnd(code, report.state)
    return lostEnd(job, { ...report, state: 'PREEMPTED', reason: 'None' }, code)
  }

  /** Slurm has forgotten the job, or tells nothing that could be understood. */
  #judgeByFiles(code: number): LaunchEnd {
    const found = endByFiles(this.#folder)
    const job = { jobId: this.#job.id, folder: this.#folder }
    return found === null ? ownEnd(code) : lostEnd(job, found, code)
  }

  #putBack(runs: number): void {
    this.#oldRuns = runs
    this.#view.putBack?.()
    this.#view.notice(`job ${this.#job.id} was put back into the queue, and will go on there`)
  }
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
