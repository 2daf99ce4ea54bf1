/** Runs programs through launcher processes. Never starts a program itself. */

import { BackendThrottled, WorkerLost } from '../../../events/library-events.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { fromErrorRecord } from '../../../foundation/error-record.ts'
import { messageOf, WorkerLostError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { once } from '../../../foundation/service.ts'
import type { Job, Refusal, TaskReport } from '../../backend.ts'
import { toEventNotice } from '../../backend.ts'
import type { Batch, Executor, ExecutorListener } from '../executor.ts'
import { toMoment, readClocks, type ClockReading } from '../machine-time.ts'
import { type Attempt, newAttempt, toProgramRequest } from './attempts.ts'
import { backOffDelay } from '../../../runtime/retry.ts'
import { type Launcher, LauncherFleet, restartPolicy } from './launcher-fleet.ts'
import { signalGroup } from '../../../runtime/process-group.ts'
import { toEndReport } from './program-report.ts'
import { captureBytes } from '../../captured-text.ts'
import type { ProgramOutput } from '../../../tasks/task-record.ts'
import type { CaptureBounds, LauncherSetup, ProgramUpdate } from './protocol.ts'

export interface LauncherPoolOptions {
  readonly maxProcesses: number
  readonly nodeId: string
  /** Launcher ids are `<idPrefix>/p1` and so on. */
  readonly idPrefix: string
  /** The working directory if the session names none. Default: the directory of this process. */
  readonly workDir?: string | null
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  /** The number of launchers. Default: 1, or 2 if many programs may run at a time. */
  readonly launchers?: number
  /** The time between SIGTERM and SIGKILL in seconds. Default 2. */
  readonly graceSeconds?: number
  /** How much of each output is kept. Default: the first and the last 64 KiB. */
  readonly capture?: CaptureBounds
  /** How launchers start programs. Default `auto`: with koffi if it is installed and works. */
  readonly spawner?: LauncherSetup['spawner']
  /** After this time without an answer, a launcher and its programs are ended. Default 30. */
  readonly answerTimeoutSeconds?: number
}

const closeDeadlineMs = 10_000
const defaultCapture: CaptureBounds = { headBytes: captureBytes, tailBytes: captureBytes }
/** With fewer programs than this, a second launcher does not help and only takes a core. */
const manyProcesses = 8
/** After so many launchers hung or were lost, their common program fails: it may be the cause. */
const [maxSilentLaunchers, maxLostLaunchers] = [3, 5]

/**
 * Runs programs. The first job starts the launchers. An idle pool does not keep the process alive.
 * Programs do not outlive the pool, its launchers or the process.
 */
export class LauncherPool implements Executor {
  readonly #options: LauncherPoolOptions
  readonly #fleet: LauncherFleet
  readonly #limit: ConcurrencyLimit
  readonly #attempts = new Map<number, Attempt>()
  readonly #byJob = new Map<Job, Attempt>()
  #lastId = 0
  /** Programs that the system refused to start. Retried after a pause or when a program ends. */
  readonly #held = new Set<Attempt>()
  /** The number of launchers lost before they reported the start of the job's program. */
  readonly #losses = new WeakMap<Job, number>()
  #isPausing = false
  /**
   * Whether the start of the next launcher is delayed. Meanwhile, jobs stay in the scheduler if no
   * launcher is running.
   */
  #isAwaitingLauncher = false
  #cancelWait: () => void = () => {}
  #closeReason = ''
  #onIdle: (() => void) | undefined

  constructor(options: LauncherPoolOptions) {
    const { clock, maxProcesses, graceSeconds = 2 } = options
    const { capture = defaultCapture, spawner = 'auto', answerTimeoutSeconds = 30 } = options
    this.#options = options
    this.#limit = new ConcurrencyLimit(maxProcesses)
    this.#fleet = new LauncherFleet({
      size: options.launchers ?? (maxProcesses < manyProcesses ? 1 : 2),
      idPrefix: options.idPrefix,
      clock,
      setup: { graceMs: graceSeconds * 1000, capture, spawner },
      answerTimeoutMs: answerTimeoutSeconds * 1000,
      onUpdates: (updates) => {
        const now = readClocks(clock)
        for (const update of updates) this.#handleUpdate(update, now)
        this.#throttle(updates)
      },
      onLost: (launcher, reason) => this.#lose(launcher, reason),
      onRefused: (errno, delayMs, isFirst) => {
        if (isFirst) this.#reportThrottled(describeRefusal('a launcher', errno), 0)
        this.#awaitLauncher(delayMs)
      },
      onStartFailed: (isNewDelay) => this.#handleFailedStart(isNewDelay),
      onStartRecovered: () => this.#resume(),
    })
  }

  get freeSlots(): number {
    if (this.#isAwaitingLauncher && this.#fleet.isEmpty) return 0
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

  /** Refuses programs while launchers fail to start; returns `null` if programs may start. */
  refusal(): Refusal | null {
    if (!this.#fleet.hasGivenUp) return null
    const message = this.#describeFailures()
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

  async output(job: Job): Promise<ProgramOutput | null> {
    const { launcher = null, id = 0 } = this.#byJob.get(job) ?? {}
    return launcher?.output(id) ?? null
  }

  endBackground(sessionId: string): Promise<void> {
    return this.#fleet.endBackground(sessionId)
  }

  readonly close = once(async (reason: string): Promise<void> => {
    this.#closeReason = reason
    this.#cancelWait()
    const cancelKill = this.#options.clock.after(closeDeadlineMs, () => this.#fleet.kill())
    for (const job of this.#byJob.keys()) this.cancel(job, reason)
    if (this.#attempts.size > 0) {
      await new Promise<void>((resolve) => (this.#onIdle = resolve))
    }
    await this.#fleet.close()
    cancelKill()
  })

  /** A thrown error would end the jobs of all sessions, so it becomes this program's failure. */
  #launch(attempt: Attempt): void {
    try {
      attempt.launcher = this.#fleet.acquire()
      attempt.launcher.request(toProgramRequest(attempt, this.#options.workDir ?? null))
    } catch (error) {
      this.#end(attempt, { kind: 'fail', error })
    }
  }

  #handleUpdate(update: ProgramUpdate, now: ClockReading): void {
    const attempt = this.#attempts.get(update.id)
    if (attempt === undefined) return
    const { job, cancelReason } = attempt
    const workerId = attempt.launcher?.id ?? ''
    switch (update.kind) {
      case 'started': {
        attempt.pid = update.pid
        const at = toMoment(now, update.at)
        const facts = attempt.spec.captureStdio === null ? {} : { facts: attempt.files }
        const start = {
          kind: 'start',
          at,
          workerId,
          nodeId: this.#options.nodeId,
          ...facts,
        } as const
        return this.#options.listener.report(job, start)
      }
      case 'ended': {
        if (update.hasBackground) attempt.launcher?.owners.add(job.sessionId)
        const { files } = attempt
        const context = { at: toMoment(now, update.at), workerId, cancelReason, files }
        this.#limit.recordSuccess()
        this.#end(attempt, toEndReport(job, update, context))
        return this.#retryHeld(0)
      }
      case 'failed':
        return this.#end(attempt, { kind: 'fail', error: fromErrorRecord(update.error) })
      case 'refused':
        return this.#handleRefusal(attempt)
    }
  }

  #handleRefusal(attempt: Attempt): void {
    const { cancelReason } = attempt
    if (cancelReason !== null) return this.#end(attempt, { kind: 'cancel', reason: cancelReason })
    this.#releaseLauncher(attempt)
    this.#held.add(attempt)
  }

  #throttle(updates: readonly ProgramUpdate[]): void {
    const refused = updates.find((item) => item.kind === 'refused')
    if (refused === undefined || this.#held.size === 0) return
    if (this.#limit.recordRefusal(this.#attempts.size - this.#held.size)) {
      this.#reportThrottled(describeRefusal('a program', refused.errno), this.#limit.limit)
    }
    if (this.#isPausing) return
    this.#isPausing = true
    this.#options.clock.after(this.#limit.nextPauseMs(), () => {
      this.#isPausing = false
      this.#retryHeld(1)
    })
  }

  #awaitLauncher(delayMs: number): void {
    this.#isAwaitingLauncher = true
    this.#cancelWait()
    this.#cancelWait = this.#options.clock.after(delayMs, () => this.#resume())
  }

  #resume(): void {
    this.#cancelWait()
    this.#isAwaitingLauncher = false
    if (!this.close.isCalled) this.#options.listener.requeue([])
  }

  #handleFailedStart(isNewDelay: boolean): void {
    if (this.close.isCalled) return
    const { failures, nextStartMs } = this.#fleet.starts
    const problem = this.#describeFailures()
    if (failures === restartPolicy.giveUpAfter) this.#options.log.warn('LaunchersBroken', problem)
    if (!isNewDelay) return
    const delayMs = nextStartMs - this.#options.clock.monotonicMs()
    const reason = `${problem}; the next one is started in ${delayMs / 1000} s`
    this.#reportThrottled(reason, this.#fleet.hasStarted ? this.#limit.limit : 0)
    this.#awaitLauncher(delayMs)
  }

  #describeFailures(): string {
    const { failures, lastError } = this.#fleet.starts
    const launchers = failures === 1 ? 'a launcher' : `${failures} launchers in a row`
    return `${launchers} ended before starting anything; the last: ${messageOf(lastError)}`
  }

  #reportThrottled(reason: string, limit: number): void {
    this.#options.listener.notice(toEventNotice(BackendThrottled, { reason, limit }))
  }

  /** Starts refused programs again, up to the limit, but at least `min` of them. */
  #retryHeld(min: number): void {
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
      const { nodeId } = this.#options
      const fields = { worker_id: workerId, reason, tasks }
      this.#options.listener.notice(toEventNotice(WorkerLost, fields, { nodeId }))
    }
    for (const attempt of attempts) this.#endLost(attempt, launcher, reason)
  }

  #endLost(attempt: Attempt, launcher: Launcher, why: string): void {
    const { cancelReason, pid, job } = attempt
    const { id: workerId, hasReported, isSilent } = launcher
    const losses = (this.#losses.get(job) ?? 0) + (hasReported || isSilent ? 1 : 0)
    this.#losses.set(job, losses)
    // The program may be on a disk that does not answer, or may kill its launcher.
    const mayBeCause = losses >= (isSilent ? maxSilentLaunchers : maxLostLaunchers)
    const facts = { workerId }
    if (cancelReason !== null) {
      return this.#end(attempt, { kind: 'cancel', reason: cancelReason, facts })
    }
    if (pid !== 0 || mayBeCause) {
      const error = new WorkerLostError(`launcher ${workerId} was lost: ${why}`)
      return this.#end(attempt, { kind: 'fail', error, facts })
    }
    this.#forget(attempt)
    this.#options.listener.requeue([job])
    this.#finish(attempt)
  }

  #end(attempt: Attempt, report: TaskReport): void {
    this.#forget(attempt)
    this.#options.listener.report(attempt.job, report)
    this.#finish(attempt)
  }

  #forget(attempt: Attempt): void {
    this.#releaseLauncher(attempt)
    this.#attempts.delete(attempt.id)
    this.#byJob.delete(attempt.job)
    this.#held.delete(attempt)
  }

  #releaseLauncher(attempt: Attempt): void {
    if (attempt.launcher !== null) this.#fleet.release(attempt.launcher)
    attempt.launcher = null
  }

  #finish({ batch }: Attempt): void {
    this.#options.listener.finish(batch)
    if (this.#attempts.size === 0) this.#onIdle?.()
  }
}

const describeRefusal = (what: string, errno: string): string =>
  `the system refused to start ${what}: ${errno}`

/** The maximum number of concurrent programs. Refusals lower it, and successes raise it. */
export class ConcurrencyLimit {
  readonly #max: number
  #limit: number
  /** The lowest limit since the maximum was last reached. Only a new lowest limit is reported. */
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

  nextPauseMs(): number {
    return backOffDelay(++this.#refusals, { first: 20, max: 1000 })
  }

  /** Returns `true` if the limit is now the lowest since the maximum was last reached. */
  recordRefusal(running: number): boolean {
    this.#limit = Math.max(1, Math.min(running, this.#limit))
    this.#successes = 0
    const isLowest = this.#limit < this.#lowest
    this.#lowest = Math.min(this.#limit, this.#lowest)
    return isLowest
  }

  /** Counts a success. The limit rises by one after `limit` successes. */
  recordSuccess(): void {
    this.#refusals = 0
    if (this.#limit === this.#max || ++this.#successes < this.#limit) return
    this.#successes = 0
    if (++this.#limit === this.#max) this.#lowest = this.#max
  }
}
