/** Submits a script as a job of Slurm, and follows it to its end. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { type JobReport, neverStarts, phaseOf } from '../slurm/job-report.ts'
import { SchedulerError, type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { mayHaveSubmitted, withdrawRequest } from './folder-jobs.ts'
import { FollowedFile, type LaunchFolder } from './launch-folder.ts'

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

/** How long a scheduler that did not answer is asked what became of the request. */
const withdrawMs = 60_000

/**
 * Resolves with the job's id. If it rejects, no job is left, or the error says that one may come.
 * `longestMs`: how long that is looked for; with 0 it is the caller's.
 */
export async function submitBatch(
  commands: SlurmCommands,
  options: readonly string[],
  folder: LaunchFolder,
  clock: Clock,
  longestMs = withdrawMs,
): Promise<string> {
  try {
    return await submit(commands, options, folder)
  } catch (error) {
    if (!mayHaveSubmitted(error) || longestMs === 0) throw error
    if (await withdrawRequest(folder, commands, { clock, longestMs })) throw error
    throw mayBeLeft(error)
  }
}

/** The folder is removed, so such a job ends as soon as it begins. */
export function mayBeLeft(error: unknown): unknown {
  if (!(error instanceof SchedulerError)) return error
  const { message, code, command, stderr } = error
  const hint = 'Slurm may have taken the job nevertheless: look with squeue, and cancel it.'
  return new SchedulerError(message, { code, command, stderr, hint })
}

async function submit(
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

/** How a job has ended. */
export interface LaunchEnd {
  /** Of the script; `null` if it has none, because it was killed with all processes of the job. */
  readonly code: number | null
  /** `AllocationLostError`, if the job has ended the script; `null` if that has ended itself. */
  readonly lost: BackendError | null
  /** In Slurm's words; `null` where it was not asked, or has forgotten the job. */
  readonly state: string | null
}

/**
 * Resolves with the script's exit code, or with `null` when the signal has ended it. Rejects with
 * `AllocationLostError` when the job has ended and the script has not.
 */
export async function followLaunch(options: FollowOptions): Promise<number | null> {
  const end = await followJob(options)
  if (end === null) return null
  if (end.lost !== null) throw end.lost
  return end.code
}

/** Resolves with `null` when the signal has ended it. */
export async function followJob(options: FollowOptions): Promise<LaunchEnd | null> {
  const { jobId, folder, commands, clock, view, signal } = options
  const job = new SlurmJob(jobId, commands, clock)
  const watch = new RunWatch(job, folder, view)
  const stdout = new FollowedFile(folder.file('stdout'))
  const stderr = new FollowedFile(folder.file('stderr'))
  let endedMs: number | null = null
  while (!signal.aborted) {
    // First the code: what is read after it is all.
    const code = watch.exitCode()
    const [out, error] = [stdout.read(), stderr.read()]
    if (watch.isRunning) view.status(null)
    await watch.tellBegin()
    if (out.length > 0) view.stdout(out)
    if (error.length > 0) view.stderr(error)
    if (code !== null) {
      const isOwn = code < firstSignal && folder.endOf(code) === 'own'
      const end = isOwn ? ownEnd(code) : await watch.judge(code, clock)
      if (end !== null) return end
    }
    const report = await watch.report()
    if (report !== undefined) {
      const phase = report === null ? 'ended' : phaseOf(report)
      if (phase === 'ended') {
        endedMs ??= clock.monotonicMs()
        const { lostState: state } = folder
        const byFiles = state === null ? null : { state, reason: 'None' }
        const isSettled = clock.monotonicMs() - endedMs >= settleMs
        if (isSettled) return lostEnd(options, report ?? byFiles, null)
      }
    }
    await sleep(clock, pollMs)
  }
  return null
}

const ownEnd = (code: number, state: string | null = null): LaunchEnd => ({
  code,
  lost: null,
  state,
})

const lostEnd = (
  { jobId, folder }: Pick<FollowOptions, 'jobId' | 'folder'>,
  report: EndReport | null,
  code: number | null,
): LaunchEnd => ({
  code,
  lost: lostError(jobId, report, folder),
  state: report?.state ?? null,
})

type EndReport = Pick<JobReport, 'state' | 'reason'>

/** Tells the runs of one job apart: Slurm may put it back into the queue, and begin it again. */
class RunWatch {
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

  /** Of a script that was ended from outside. `null`: the job was put back into the queue. */
  async judge(code: number, clock: Clock): Promise<LaunchEnd | null> {
    const { runs } = this.#folder
    const untilMs = clock.monotonicMs() + longestEndMs
    while (clock.monotonicMs() < untilMs) {
      const report = await this.#job.report({ isChanged: true }).catch(() => null)
      if (report === null) return this.#judgeByFiles(code)
      this.#latest = { report, runs }
      if (lostStates.test(report.state)) {
        return lostEnd({ jobId: this.#job.id, folder: this.#folder }, report, code)
      }
      if (phaseOf(report) === 'waiting' || this.#folder.runs > runs) {
        this.#putBack(runs)
        return null
      }
      if (phaseOf(report) === 'ended') {
        if (!(await this.#job.isPreempted().catch(() => false))) return ownEnd(code, report.state)
        const preempted = { ...report, state: 'PREEMPTED', reason: 'None' }
        return lostEnd({ jobId: this.#job.id, folder: this.#folder }, preempted, code)
      }
      await sleep(clock, endingMs)
    }
    return ownEnd(code)
  }

  /** Slurm has forgotten the job, or does not answer. */
  #judgeByFiles(code: number): LaunchEnd {
    const state = this.#folder.lostState
    if (state === null) return ownEnd(code)
    const report = { state, reason: 'None' }
    return lostEnd({ jobId: this.#job.id, folder: this.#folder }, report, code)
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

/** Whether the job would never have begun: nothing of it is worth keeping. */
export const isRefusal = (error: unknown): boolean =>
  BackendError.isInstance(error) && error.code === 'AllocationRefusedError'

/** `null`: Slurm does not know the job any more. With the folder that its first node must see. */
export function lostError(
  jobId: string,
  report: EndReport | null,
  folder?: LaunchFolder,
): BackendError {
  const code = 'AllocationLostError'
  const state = report === null ? 'forgotten by Slurm' : report.state
  const why = report === null || report.reason === 'None' ? '' : ` (${report.reason})`
  const text = `job ${jobId} is ${state}${why}`
  // Slurm does not say which file it could not open.
  const hasBegun = folder === undefined || folder.hasStarted || report?.state !== 'FAILED'
  if (hasBegun) return new BackendError(text, { code })
  return new BackendError(`${text}: it has not begun; its node may not see ${folder.path}`, {
    code,
    hint: 'Start it in a folder on a shared file system. `npx tutti launch --check` tells more.',
  })
}
