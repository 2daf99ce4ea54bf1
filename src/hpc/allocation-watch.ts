/**
 * Announces the end of an allocation in advance, and its loss. In a process on its nodes it handles
 * SIGTERM, by which the scheduler announces the end of the job.
 */

import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { boundedWait } from '../foundation/promises.ts'
import type { Allocation } from './allocation.ts'
import { tellSignal } from './start-method.ts'

export interface AllocationWatchOptions {
  readonly allocation: Allocation
  readonly graceSeconds: number
  readonly clock: Clock
  readonly log: Log
  /** Called once at a tenth of the time limit (or twice the grace), and once at the grace. */
  readonly onEnding: (secondsLeft: number) => void
  /** Called at SIGTERM, before it is known who sent it. */
  readonly onSignal?: () => void
  /** Called once: no task may begin any more, and running ones must end. */
  readonly onEnd: (reason: string, cause: 'limit' | 'loss') => void
}

const pollMs = 1000
/** How long to wait for the scheduler, which must not prevent a signal from ending this process. */
const maxAnswerMs = 5000

export class AllocationWatch {
  readonly #options: AllocationWatchOptions
  /** The times at which the end is announced, in seconds before it; the last one is the grace. */
  readonly #warnings: number[]
  #cancelPoll: () => void = () => {}
  #endsAt: number | null = null
  #isClosed = false
  #hasFailed = false
  #judging: Promise<void> | null = null
  readonly #onSignal = (): void => {
    tellSignal()
    this.#options.onSignal?.()
    this.#judging ??= this.#judge()
  }

  constructor(options: AllocationWatchOptions) {
    this.#options = options
    const { graceSeconds, allocation } = options
    const early = Math.max((allocation.limitSeconds ?? 0) * 0.1, 2 * graceSeconds)
    this.#warnings = [early, graceSeconds]
    // Runs before other handlers: their cleanup has to wait for the scheduler's answer.
    if (allocation.hasThisProcess) process.prependListener('SIGTERM', this.#onSignal)
    void this.#poll()
  }

  /**
   * The seconds until running tasks are canceled; `Infinity` without a limit or while it is
   * unknown.
   */
  get secondsLeft(): number {
    const { clock, graceSeconds } = this.#options
    return this.#endsAt === null ? Infinity : this.#endsAt - graceSeconds - clock.now()
  }

  /** Resolves when it is known whether a SIGTERM announced the end; at once without a SIGTERM. */
  async judged(): Promise<void> {
    await this.#judging
  }

  close(): void {
    this.#isClosed = true
    this.#cancelPoll()
    process.off('SIGTERM', this.#onSignal)
  }

  /** Finds out who sent SIGTERM: the scheduler, which ends the job, or a user. */
  async #judge(): Promise<void> {
    const { allocation, clock, onEnd } = this.#options
    const asking = allocation.state({ isChanged: true })
    const found = await boundedWait(clock, maxAnswerMs, asking).catch(() => null)
    if (this.#isClosed) return
    if (found !== null && found.lost !== null)
      return onEnd(`AllocationLostError: ${found.lost}`, 'loss')
    this.#judging = null
    if (process.listenerCount('SIGTERM') > 1) return
    // Without another handler, repeats the signal with its default action.
    process.off('SIGTERM', this.#onSignal)
    process.kill(process.pid, 'SIGTERM')
  }

  /** Asks for the limit each time, because it may be changed while the job runs. */
  async #poll(): Promise<void> {
    const { allocation, clock, log, onEnd } = this.#options
    try {
      const { endsAt, lost, isEnding } = await allocation.state()
      this.#hasFailed = false
      if (!isEnding) this.#endsAt = endsAt
      if (this.#isClosed) return
      if (lost !== null) return onEnd(`AllocationLostError: ${lost}`, 'loss')
      // While the job is ending, the cause is not known yet; it may not be the time limit.
      const hasLimit = endsAt !== null && !isEnding
      if (hasLimit && this.#isOver(endsAt - clock.now())) return
    } catch (error) {
      // Warns once per outage, which may last long; tasks do not need the scheduler.
      if (!this.#hasFailed) log.warn('SchedulerSilent', messageOf(error))
      this.#hasFailed = true
    }
    if (this.#isClosed) return
    this.#cancelPoll = clock.after(pollMs, () => void this.#poll(), { background: true })
  }

  #isOver(secondsLeft: number): boolean {
    const { onEnding, onEnd, graceSeconds } = this.#options
    if (secondsLeft > (this.#warnings[0] ?? -Infinity)) return false
    while (secondsLeft <= (this.#warnings[0] ?? -Infinity)) this.#warnings.shift()
    onEnding(Math.max(0, secondsLeft))
    if (secondsLeft > graceSeconds) return false
    onEnd(`AllocationEnding: the time limit of ${this.#options.allocation.label}`, 'limit')
    return true
  }
}
