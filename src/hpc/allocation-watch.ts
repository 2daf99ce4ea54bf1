/**
 * Tells of the end of an allocation before it comes, and of its loss. In a process of the
 * allocation it handles SIGTERM, which is the only word that the scheduler has for it.
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
  /** Once, at a tenth of its time or twice the grace, and once at the grace. */
  readonly onEnding: (secondsLeft: number) => void
  /** At SIGTERM, before it is known whose it is. */
  readonly onSignal?: () => void
  /** Nothing may begin any more, and what runs must end. Called once. */
  readonly onEnd: (reason: string, cause: 'limit' | 'loss') => void
}

const pollMs = 1000
/** A scheduler that is away must not keep a signal from ending this process. */
const longestAnswerMs = 5000

export class AllocationWatch {
  readonly #options: AllocationWatchOptions
  /** Seconds before the end at which it is told; the last is the grace. */
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
    // Before other handlers: what they close has to wait for the answer.
    if (allocation.hasThisProcess) process.prependListener('SIGTERM', this.#onSignal)
    void this.#poll()
  }

  /** Until what runs is canceled; `Infinity` without a limit, or while it is not known. */
  get secondsLeft(): number {
    const { clock, graceSeconds } = this.#options
    return this.#endsAt === null ? Infinity : this.#endsAt - graceSeconds - clock.now()
  }

  /** Resolves when a signal that may tell of the end is understood; at once if none has come. */
  async judged(): Promise<void> {
    await this.#judging
  }

  close(): void {
    this.#isClosed = true
    this.#cancelPoll()
    process.off('SIGTERM', this.#onSignal)
  }

  /** The scheduler sends SIGTERM when it ends the job; a person may send it to this process. */
  async #judge(): Promise<void> {
    const { allocation, clock, onEnd } = this.#options
    const asking = allocation.state({ isChanged: true })
    const found = await boundedWait(clock, longestAnswerMs, asking).catch(() => null)
    if (this.#isClosed) return
    if (found !== null && found.lost !== null)
      return onEnd(`AllocationLostError: ${found.lost}`, 'loss')
    this.#judging = null
    if (process.listenerCount('SIGTERM') > 1) return
    // As if there were no handler.
    process.off('SIGTERM', this.#onSignal)
    process.kill(process.pid, 'SIGTERM')
  }

  /** The limit may be changed while the job runs, so it is asked for again. */
  async #poll(): Promise<void> {
    const { allocation, clock, log, onEnd } = this.#options
    try {
      const { endsAt, lost, isEnding } = await allocation.state()
      this.#hasFailed = false
      if (!isEnding) this.#endsAt = endsAt
      if (this.#isClosed) return
      if (lost !== null) return onEnd(`AllocationLostError: ${lost}`, 'loss')
      // How it ends is told a little later; it may not be by its limit.
      const hasLimit = endsAt !== null && !isEnding
      if (hasLimit && this.#isOver(endsAt - clock.now())) return
    } catch (error) {
      // The controller may be away for long, and tasks do not need it.
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
