/** Detects watched processes that show no activity although they should. */

import type { Clock } from '../foundation/clock.ts'

/** A watched process, or anything else that shows activity. */
export interface WatchedProcess {
  /** How long the process was silent at the last check; negative after later activity. */
  silentMs: number
}

export interface SilenceWatchOptions<One extends WatchedProcess> {
  readonly clock: Clock
  readonly intervalMs: number
  readonly maxSilenceMs: () => number
  /** Processes that should show activity now. The timer runs only while there are any. */
  readonly expected: () => readonly One[]
  readonly onCheck?: (expected: readonly One[]) => void
  readonly onHung: (hung: readonly One[]) => void
}

/**
 * Detects silent processes. Counts checks instead of time, because messages may be unread after
 * this process was suspended or busy.
 */
export class SilenceWatch<One extends WatchedProcess> {
  readonly #options: SilenceWatchOptions<One>
  #checkedMs = 0
  #lastStallMs = -Infinity
  #cancel: (() => void) | null = null

  constructor(options: SilenceWatchOptions<One>) {
    this.#options = options
  }

  /**
   * The time of the last check that was late by an interval or more; the current time if the next
   * check is already that late. After this process was suspended, other timers may fire before the
   * check.
   */
  get lastStallMs(): number {
    const nowMs = this.#options.clock.monotonicMs()
    return this.#cancel !== null && this.#isLate(nowMs) ? nowMs : this.#lastStallMs
  }

  /** Call it on every activity, and once when you start to expect activity. */
  recordActivity(one: One): void {
    const { clock, intervalMs } = this.#options
    if (this.#cancel === null) this.#schedule()
    one.silentMs = Math.max(-intervalMs, this.#checkedMs - clock.monotonicMs())
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = null
  }

  #schedule(): void {
    const { clock, intervalMs } = this.#options
    this.#checkedMs = clock.monotonicMs()
    this.#cancel = clock.after(intervalMs, () => this.#check(), { background: true })
  }

  #isLate(nowMs: number): boolean {
    return nowMs - this.#checkedMs >= 2 * this.#options.intervalMs
  }

  #check(): void {
    const { clock, maxSilenceMs, expected, onCheck, onHung } = this.#options
    const nowMs = clock.monotonicMs()
    if (this.#isLate(nowMs)) this.#lastStallMs = nowMs
    this.#cancel = null
    const all = expected()
    if (all.length === 0) return
    this.#schedule()
    for (const one of all) one.silentMs += this.#options.intervalMs
    const hung = all.filter(({ silentMs }) => silentMs >= maxSilenceMs())
    onCheck?.(all)
    if (hung.length > 0) onHung(hung)
  }
}
