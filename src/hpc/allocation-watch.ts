/**
 * Announces and reports the end of an allocation, and handles the SIGTERM that ends its job. Asks
 * the scheduler whether a task failed because its allocation was lost.
 */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { messageOf, WorkerLostError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { boundedWait } from '../foundation/promises.ts'
import { ExecutableFailedError } from '../foundation/task-errors.ts'
import type { Allocation } from './allocation.ts'
import { leaveMark } from './start-method.ts'

export interface AllocationWatchOptions {
  readonly allocation: Allocation
  readonly graceSeconds: number
  readonly clock: Clock
  readonly log: Log
  /**
   * Called at most twice: when 10% of the limit or twice the grace time is left, whichever is more,
   * and when the grace time is left.
   */
  readonly onEnding: (secondsLeft: number) => void
  /** Called at SIGTERM, before its sender is known. */
  readonly onSignal?: () => void
  /** Called once, when the allocation ends or is lost. Tasks must then end. */
  readonly onEnd: (reason: string, cause: 'limit' | 'loss') => void
}

const pollIntervalMs = 1000
/** How long a SIGTERM waits for the scheduler's answer before it may end this process. */
const answerTimeoutMs = 5000

export class AllocationWatch {
  readonly #options: AllocationWatchOptions
  /** The end is announced this many seconds in advance. The last value is the grace time. */
  readonly #announceAtSeconds: number[]
  #cancelPoll: () => void = () => {}
  #endsAt: number | null = null
  #isClosed = false
  #hasFailed = false
  #signalCheck: Promise<void> | null = null
  readonly #onSignal = (): void => {
    leaveMark('signaled')
    this.#options.onSignal?.()
    this.#signalCheck ??= this.#checkSignal()
  }

  constructor(options: AllocationWatchOptions) {
    this.#options = options
    const { graceSeconds, allocation } = options
    const earlySeconds = Math.max((allocation.limitSeconds ?? 0) * 0.1, 2 * graceSeconds)
    this.#announceAtSeconds = [earlySeconds, graceSeconds]
    // Runs before the other handlers, because their cleanup must wait for the scheduler's answer.
    if (allocation.hasThisProcess) process.prependListener('SIGTERM', this.#onSignal)
    void this.#poll()
  }

  /** Seconds until running tasks are canceled; `Infinity` if there is no limit or it is unknown. */
  get secondsLeft(): number {
    const { clock, graceSeconds } = this.#options
    return this.#endsAt === null ? Infinity : this.#endsAt - graceSeconds - clock.now()
  }

  /**
   * Resolves when it is known whether the scheduler sent the SIGTERM, or immediately if there was
   * none.
   */
  async signalChecked(): Promise<void> {
    await this.#signalCheck
  }

  close(): void {
    this.#isClosed = true
    this.#cancelPoll()
    process.off('SIGTERM', this.#onSignal)
  }

  async #checkSignal(): Promise<void> {
    const { allocation, clock, onEnd } = this.#options
    const stateQuery = allocation.state({ isChanged: true })
    const found = await boundedWait(clock, answerTimeoutMs, stateQuery).catch(() => null)
    if (this.#isClosed) return
    if (found !== null && found.lost !== null)
      return onEnd(`AllocationLostError: ${found.lost}`, 'loss')
    this.#signalCheck = null
    if (process.listenerCount('SIGTERM') > 1) return
    // No other handler exists, so the signal is sent again with its default action.
    process.off('SIGTERM', this.#onSignal)
    process.kill(process.pid, 'SIGTERM')
  }

  /** Queries the limit each time, because it may change while the job runs. */
  async #poll(): Promise<void> {
    const { allocation, clock, log, onEnd } = this.#options
    try {
      const { endsAt, lost, isEnding } = await allocation.state()
      this.#hasFailed = false
      if (!isEnding) this.#endsAt = endsAt
      if (this.#isClosed) return
      if (lost !== null) return onEnd(`AllocationLostError: ${lost}`, 'loss')
      // While a job is ending, the cause is not known, and may not be the time limit.
      const hasLimit = endsAt !== null && !isEnding
      if (hasLimit && this.#announce(endsAt - clock.now())) return
    } catch (error) {
      // Warns once per outage, and continues, because tasks do not need the scheduler.
      if (!this.#hasFailed) log.warn('SchedulerSilent', messageOf(error))
      this.#hasFailed = true
    }
    if (this.#isClosed) return
    this.#cancelPoll = clock.after(pollIntervalMs, () => void this.#poll(), { background: true })
  }

  #announce(secondsLeft: number): boolean {
    const { onEnding, onEnd, graceSeconds } = this.#options
    if (secondsLeft > (this.#announceAtSeconds[0] ?? -Infinity)) return false
    while (secondsLeft <= (this.#announceAtSeconds[0] ?? -Infinity)) this.#announceAtSeconds.shift()
    onEnding(Math.max(0, secondsLeft))
    if (secondsLeft > graceSeconds) return false
    onEnd(`AllocationEnding: the time limit of ${this.#options.allocation.label}`, 'limit')
    return true
  }
}

/** How long to wait for the scheduler's answer. A longer wait would delay the retries of tasks. */
const lossTimeoutMs = 5000
const lossPollMs = 250

/**
 * The delay of the first query. Slurm kills the processes of a job one by one, before it reports
 * the end of the job.
 */
const firstQueryDelayMs = 500

/** The exit codes of shells and many programs after SIGINT, SIGKILL and SIGTERM. */
const signalCodes: ReadonlySet<number | null> = new Set([130, 137, 143])

/** Forwards reports. Asks the scheduler first if a lost allocation may have caused a failure. */
export class LossReports implements BackendListener {
  readonly #listener: BackendListener
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #onLost: (reason: string) => void
  readonly #waiting = new Set<Promise<void>>()
  #query: Promise<string | null> | null = null

  /** `onLost` is called before the first task is reported as canceled because of the loss. */
  constructor(
    listener: BackendListener,
    allocation: Allocation,
    clock: Clock,
    onLost: (reason: string) => void,
  ) {
    this.#onLost = onLost
    this.#listener = listener
    this.#allocation = allocation
    this.#clock = clock
  }

  report(job: Job, report: TaskReport): void {
    const mayBeLoss = report.kind === 'fail' && isKilled(report.error)
    if (!mayBeLoss) return this.#listener.report(job, report)
    const waiting = this.#reportWhenKnown(job, report).finally(() => this.#waiting.delete(waiting))
    this.#waiting.add(waiting)
  }

  notice(notice: Notice): void {
    this.#listener.notice(notice)
  }

  async settled(): Promise<void> {
    while (this.#waiting.size > 0) await Promise.all(this.#waiting)
  }

  async #reportWhenKnown(job: Job, report: TaskReport): Promise<void> {
    this.#query ??= boundedWait(this.#clock, 2 * lossTimeoutMs, this.#findLossReason())
      .catch(() => null)
      .finally(() => (this.#query = null))
    const lost = await this.#query
    if (lost === null) return this.#listener.report(job, report)
    const reason = `AllocationLostError: ${lost}`
    this.#onLost(reason)
    this.#listener.report(job, { kind: 'cancel', reason })
  }

  /** Polls while the job is ending, because its final state is known only later. */
  async #findLossReason(): Promise<string | null> {
    await sleep(this.#clock, firstQueryDelayMs)
    const untilMs = this.#clock.monotonicMs() + lossTimeoutMs
    for (; ; await sleep(this.#clock, lossPollMs)) {
      const { lost, isEnding } = await this.#allocation.state({ isChanged: true })
      if (!isEnding) return lost
      if (this.#clock.monotonicMs() >= untilMs) return 'the job is ending'
    }
  }
}

function isKilled(error: unknown): boolean {
  if (WorkerLostError.isInstance(error)) return true
  if (!ExecutableFailedError.isInstance(error)) return false
  return error.signal !== null || signalCodes.has(error.exitCode)
}
