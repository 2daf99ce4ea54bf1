/** Runs executables through launcher processes. Never starts a task's program itself. */

import { BackendThrottled, WorkerLost } from '../../../events/library-events.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { fromErrorRecord } from '../../../foundation/error-record.ts'
import { messageOf, WorkerLostError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { once } from '../../../foundation/service.ts'
import type { Job, Refusal, TaskReport } from '../../backend.ts'
import { toEventNotice } from '../../backend.ts'
import type { Batch, Executor, ExecutorListener } from '../executor.ts'
import { momentOf, readTime, type TimeReading } from '../machine-time.ts'
import { type Attempt, newAttempt, toProgramRequest } from './attempts.ts'
import { backOffDelay } from '../../../runtime/retry.ts'
import { type Launcher, LauncherFleet, startPacing } from './launcher-fleet.ts'
import { signalGroup } from '../../../runtime/process-group.ts'
import { toEndReport } from './program-report.ts'
import { keptBytes } from '../../captured-text.ts'
import type { ProgramOutput } from '../../../tasks/task-record.ts'
import type { CaptureBounds, LauncherSetup, ProgramUpdate } from './protocol.ts'

export interface LauncherPoolOptions {
  /** The maximum number of concurrent programs. */
  readonly maxProcesses: number
  readonly nodeId: string
  /** Launcher ids are `<idPrefix>/p1` and so on. */
  readonly idPrefix: string
  /** The working directory of programs whose session names none. Default: the process's own. */
  readonly workDir?: string | null
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  /** The number of launchers. Default: 1 for few processes at once, 2 for many. */
  readonly launchers?: number
  /** The time between SIGTERM and SIGKILL. Default 2. */
  readonly graceSeconds?: number
  /** How much of each output is kept. Default: the first and the last 64 KiB. */
  readonly capture?: CaptureBounds
  /** Default `auto`: koffi where it is installed and works. */
  readonly spawner?: LauncherSetup['spawner']
  /**
   * A launcher with programs that does not answer for this long is replaced, and its programs are
   * ended. Default 30, so that a launcher may wait for a slow disk.
   */
  readonly answerSeconds?: number
}

const closeDeadlineMs = 10_000
const defaultCapture: CaptureBounds = { headBytes: keptBytes, tailBytes: keptBytes }
/** Measured: with fewer processes, a second launcher only competes with the programs for cores. */
const manyProcesses = 8
/**
 * After this many launchers stopped answering, or ended before they reported the program's start,
 * the program is not sent again: it may be the cause.
 */
const [maxSilent, maxLost] = [3, 5]

/**
 * Launchers are started by the first job and kept. An idle pool does not keep the process alive.
 * Programs do not outlive the pool, its launchers or the process.
 */
export class LauncherPool implements Executor {
  readonly #clock: Clock
  readonly #log: Log
  readonly #listener: ExecutorListener
  readonly #fleet: LauncherFleet
  readonly #limit: ConcurrencyLimit
  readonly #nodeId: string
  readonly #workDir: string | null
  /** The attempts that have not ended, by id and by job. */
  readonly #attempts = new Map<number, Attempt>()
  readonly #byJob = new Map<Job, Attempt>()
  #lastId = 0
  /** Programs that the system refused to start, retried when another one ends or after a pause. */
  readonly #held = new Set<Attempt>()
  /** How many launchers were lost before they reported the start of a job's program. */
  readonly #losses = new WeakMap<Job, number>()
  #isPausing = false
  /** While no launcher may be started, no job is assigned, so that waiting jobs hold no cores. */
  #isWithoutLauncher = false
  #cancelWait: () => void = () => {}
  #closeReason = ''
  #onIdle: (() => void) | undefined

  constructor(options: LauncherPoolOptions) {
    const { clock, log, listener, maxProcesses, graceSeconds = 2 } = options
    const { capture = defaultCapture, spawner = 'auto', answerSeconds = 30 } = options
    this.#clock = clock
    this.#nodeId = options.nodeId
    this.#workDir = options.workDir ?? null
    this.#log = log
    this.#listener = listener
    this.#limit = new ConcurrencyLimit(maxProcesses)
    this.#fleet = new LauncherFleet({
      size: options.launchers ?? (maxProcesses < manyProcesses ? 1 : 2),
      idPrefix: options.idPrefix,
      clock,
      setup: { graceMs: graceSeconds * 1000, capture, spawner },
      answerMs: answerSeconds * 1000,
      onUpdates: (updates) => {
        const now = readTime(clock)
        for (const update of updates) this.#take(update, now)
        this.#throttle(updates)
      },
      onLost: (launcher, reason) => this.#lose(launcher, reason),
      onRefused: (errno, delayMs, isFirst) => {
        if (isFirst) this.#tellThrottled(refusalOf('a launcher', errno), 0)
        this.#awaitLauncher(delayMs)
      },
      onStartFailed: (isNewDelay) => this.#failStart(isNewDelay),
      onStartedAgain: () => this.#resume(),
    })
  }

  get freeSlots(): number {
    if (this.#isWithoutLauncher && this.#fleet.isEmpty) return 0
    return Math.max(0, this.#limit.limit - this.#attempts.size)
  }

  batchSize(): number {
    return 1
  }

  assign(batch: Batch): void {
    const attempt = newAttempt(++this.#lastId, batch)
    this.#attempts.set(attempt.id, attempt)
    this.#byJob.set(attempt.job, attempt)
    if (!this.close.isCalled) this.#launch(attempt)
    else this.#end(attempt, { kind: 'cancel', reason: this.#closeReason })
  }

  /** Why programs are refused for now: launchers do not start, and the next start is not due. */
  refusal(): Refusal | null {
    if (!this.#fleet.hasGivenUp) return null
    const message = this.#startProblem()
    return { field: 'executable', message, code: 'WorkersDoNotStartError' }
  }

  cancel(job: Job, reason: string): void {
    const attempt = this.#byJob.get(job)
    if (attempt === undefined || attempt.cancelReason !== null) return
    attempt.cancelReason = reason
    const { launcher, id } = attempt
    if (launcher === null || launcher.withdraw(id)) {
      this.#end(attempt, { kind: 'cancel', reason })
    } else {
      launcher.stop(id)
    }
  }

  /** The output of a program so far; `null` if the program is not running. */
  async output(job: Job): Promise<ProgramOutput | null> {
    const { launcher = null, id = 0 } = this.#byJob.get(job) ?? {}
    return launcher?.output(id) ?? null
  }

  /** Ends the background processes that a session's programs left behind in their groups. */
  endBackground(sessionId: string): Promise<void> {
    return this.#fleet.endBackground(sessionId)
  }

  readonly close = once(async (reason: string): Promise<void> => {
    this.#closeReason = reason
    this.#cancelWait()
    const cancelKill = this.#clock.after(closeDeadlineMs, () => this.#fleet.kill())
    for (const job of this.#byJob.keys()) this.cancel(job, reason)
    if (this.#attempts.size > 0) {
      await new Promise<void>((resolve) => (this.#onIdle = resolve))
    }
    await this.#fleet.close()
    cancelKill()
  })

  /** An error fails this program alone: thrown here, it would end the jobs of all sessions. */
  #launch(attempt: Attempt): void {
    try {
      attempt.launcher = this.#fleet.take()
      attempt.launcher.request(toProgramRequest(attempt, this.#workDir))
    } catch (error) {
      this.#end(attempt, { kind: 'fail', error })
    }
  }

  #take(update: ProgramUpdate, now: TimeReading): void {
    const attempt = this.#attempts.get(update.id)
    if (attempt === undefined) return
    const { job, cancelReason } = attempt
    const workerId = attempt.launcher?.id ?? ''
    switch (update.kind) {
      case 'started': {
        attempt.pid = update.pid
        const at = momentOf(now, update.at)
        const facts = attempt.spec.captureStdio === null ? {} : { facts: attempt.files }
        const start = { kind: 'start', at, workerId, nodeId: this.#nodeId, ...facts } as const
        return this.#listener.report(job, start)
      }
      case 'ended': {
        if (update.hasBackground) attempt.launcher?.owners.add(job.sessionId)
        const { files } = attempt
        const context = { at: momentOf(now, update.at), workerId, cancelReason, files }
        this.#limit.succeed()
        this.#end(attempt, toEndReport(job, update, context))
        return this.#retry(0)
      }
      case 'failed':
        return this.#end(attempt, { kind: 'fail', error: fromErrorRecord(update.error) })
      case 'refused':
        return this.#refuse(attempt)
    }
  }

  /** The system refused to start the program for lack of resources: it waits in `#held`. */
  #refuse(attempt: Attempt): void {
    const { cancelReason } = attempt
    if (cancelReason !== null) return this.#end(attempt, { kind: 'cancel', reason: cancelReason })
    this.#leave(attempt)
    this.#held.add(attempt)
  }

  /** Lowers the limit after a refusal, and retries refused programs after a pause. */
  #throttle(updates: readonly ProgramUpdate[]): void {
    const refused = updates.find((item) => item.kind === 'refused')
    if (refused === undefined || this.#held.size === 0) return
    if (this.#limit.refuse(this.#attempts.size - this.#held.size)) {
      this.#tellThrottled(refusalOf('a program', refused.errno), this.#limit.limit)
    }
    if (this.#isPausing) return
    this.#isPausing = true
    this.#clock.after(this.#limit.nextPauseMs(), () => {
      this.#isPausing = false
      this.#retry(1)
    })
  }

  #awaitLauncher(delayMs: number): void {
    this.#isWithoutLauncher = true
    this.#cancelWait()
    this.#cancelWait = this.#clock.after(delayMs, () => this.#resume())
  }

  #resume(): void {
    this.#cancelWait()
    this.#isWithoutLauncher = false
    // Makes the scheduler assign waiting jobs.
    if (!this.close.isCalled) this.#listener.giveBack([])
  }

  /** A launcher ended before it could start any program: the programs wait. */
  #failStart(isNewDelay: boolean): void {
    if (this.close.isCalled) return
    const { failures, notBeforeMs } = this.#fleet.starts
    const problem = this.#startProblem()
    if (failures === startPacing.giveUpAfter) this.#log.warn('LaunchersBroken', problem)
    if (!isNewDelay) return
    const delayMs = notBeforeMs - this.#clock.monotonicMs()
    const reason = `${problem}; the next one is started in ${delayMs / 1000} s`
    this.#tellThrottled(reason, this.#fleet.hasStarted ? this.#limit.limit : 0)
    this.#awaitLauncher(delayMs)
  }

  #startProblem(): string {
    const { failures, lastError } = this.#fleet.starts
    const launchers = failures === 1 ? 'a launcher' : `${failures} launchers in a row`
    return `${launchers} ended before starting anything; the last: ${messageOf(lastError)}`
  }

  #tellThrottled(reason: string, limit: number): void {
    this.#listener.notice(toEventNotice(BackendThrottled, { reason, limit }))
  }

  /** Starts held programs up to the limit, but at least `min` of them. */
  #retry(min: number): void {
    const running = this.#attempts.size - this.#held.size
    const room = Math.max(min, this.#limit.limit - running)
    for (const attempt of [...this.#held].slice(0, room)) {
      this.#held.delete(attempt)
      this.#launch(attempt)
    }
  }

  #lose(launcher: Launcher, reason: string): void {
    const attempts = [...this.#attempts.values()].filter((one) => one.launcher === launcher)
    const lost = attempts.filter(({ pid }) => pid !== 0)
    for (const { pid } of lost) signalGroup(pid, 'SIGKILL')
    const workerId = launcher.id
    if (!this.close.isCalled && !launcher.isRefused) {
      const tasks = lost.map(({ job }) => job.uid)
      const nodeId = this.#nodeId
      const fields = { worker_id: workerId, reason, tasks }
      this.#listener.notice(toEventNotice(WorkerLost, fields, { nodeId }))
    }
    for (const attempt of attempts) this.#endLost(attempt, launcher, reason)
  }

  #endLost(attempt: Attempt, launcher: Launcher, why: string): void {
    const { cancelReason, pid, job } = attempt
    const { id: workerId, hasReported, isSilent } = launcher
    const losses = (this.#losses.get(job) ?? 0) + (hasReported || isSilent ? 1 : 0)
    this.#losses.set(job, losses)
    // The program may be on a disk that does not answer, or kill its parent at once.
    const mayBeCause = losses >= (isSilent ? maxSilent : maxLost)
    const facts = { workerId }
    if (cancelReason !== null) {
      return this.#end(attempt, { kind: 'cancel', reason: cancelReason, facts })
    }
    if (pid !== 0 || mayBeCause) {
      const error = new WorkerLostError(`launcher ${workerId} was lost: ${why}`)
      return this.#end(attempt, { kind: 'fail', error, facts })
    }
    this.#forget(attempt)
    this.#listener.giveBack([job])
    this.#finish(attempt)
  }

  #end(attempt: Attempt, report: TaskReport): void {
    this.#forget(attempt)
    this.#listener.report(attempt.job, report)
    this.#finish(attempt)
  }

  #forget(attempt: Attempt): void {
    this.#leave(attempt)
    this.#attempts.delete(attempt.id)
    this.#byJob.delete(attempt.job)
    this.#held.delete(attempt)
  }

  #leave(attempt: Attempt): void {
    if (attempt.launcher !== null) this.#fleet.release(attempt.launcher)
    attempt.launcher = null
  }

  #finish({ batch }: Attempt): void {
    this.#listener.finish(batch)
    if (this.#attempts.size === 0) this.#onIdle?.()
  }
}

const refusalOf = (what: string, errno: string): string =>
  `the system refused to start ${what}: ${errno}`

/** How many programs may run at once: lowered by a refusal of the system, raised by successes. */
export class ConcurrencyLimit {
  readonly #max: number
  #limit: number
  /** The lowest limit since the limit was last at its maximum. Only a new lowest is reported. */
  #lowest: number
  #successes = 0
  #refusals = 0

  constructor(max: number) {
    this.#max = max
    this.#limit = max
    this.#lowest = max
  }

  get limit(): number {
    return this.#limit
  }

  /** The delay before the next attempt; it doubles with each refusal in a row. */
  nextPauseMs(): number {
    return backOffDelay(++this.#refusals, { first: 20, max: 1000 })
  }

  /** The system refused one more than `running` programs. Returns `true` for a new lowest limit. */
  refuse(running: number): boolean {
    this.#limit = Math.max(1, Math.min(running, this.#limit))
    this.#successes = 0
    const isLowest = this.#limit < this.#lowest
    this.#lowest = Math.min(this.#limit, this.#lowest)
    return isLowest
  }

  /** A program ended. After as many successes as the limit, the limit rises by one. */
  succeed(): void {
    this.#refusals = 0
    if (this.#limit === this.#max || ++this.#successes < this.#limit) return
    this.#successes = 0
    if (++this.#limit === this.#max) this.#lowest = this.#max
  }
}
