/** Announces and reports the end of an allocation, and handles the SIGTERM that ends its job. */

import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { boundedWait } from '../foundation/promises.ts'
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
