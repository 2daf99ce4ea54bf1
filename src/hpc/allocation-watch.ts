/** Tells of the end of an allocation before it comes, and of its loss. */

import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import type { Allocation } from './allocation.ts'

export interface AllocationWatchOptions {
  readonly allocation: Allocation
  readonly graceSeconds: number
  readonly clock: Clock
  readonly log: Log
  /** Once, at a tenth of its time or twice the grace, and once at the grace. */
  readonly onEnding: (secondsLeft: number) => void
  /** Nothing may begin any more, and what runs must end. Called once. */
  readonly onEnd: (reason: string) => void
}

const pollMs = 1000

export class AllocationWatch {
  readonly #options: AllocationWatchOptions
  /** Seconds before the end at which it is told; the last is the grace. */
  readonly #warnings: number[]
  #cancelPoll: () => void = () => {}
  #endsAt: number | null = null
  #isClosed = false
  #hasFailed = false

  constructor(options: AllocationWatchOptions) {
    this.#options = options
    const { graceSeconds, allocation } = options
    const early = Math.max((allocation.limitSeconds ?? 0) * 0.1, 2 * graceSeconds)
    this.#warnings = [early, graceSeconds]
    void this.#poll()
  }

  /** Until what runs is canceled; `Infinity` without a limit, or while it is not known. */
  get secondsLeft(): number {
    const { clock, graceSeconds } = this.#options
    return this.#endsAt === null ? Infinity : this.#endsAt - graceSeconds - clock.now()
  }

  close(): void {
    this.#isClosed = true
    this.#cancelPoll()
  }

  /** The limit may be changed while the job runs, so it is asked for again. */
  async #poll(): Promise<void> {
    const { allocation, clock, log, onEnd } = this.#options
    try {
      const { endsAt, lost, isEnding } = await allocation.state()
      this.#hasFailed = false
      if (!isEnding) this.#endsAt = endsAt
      if (this.#isClosed) return
      if (lost !== null) return onEnd(`AllocationLostError: ${lost}`)
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
    onEnd(`AllocationEnding: the time limit of ${this.#options.allocation.label}`)
    return true
  }
}
