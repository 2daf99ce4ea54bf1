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

  /** The time of the last check that was late by an interval or more. */
  get lastStallMs(): number {
    return this.#lastStallMs
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

  #check(): void {
    const { clock, intervalMs, maxSilenceMs, expected, onCheck, onHung } = this.#options
    const nowMs = clock.monotonicMs()
    if (nowMs - this.#checkedMs >= 2 * intervalMs) this.#lastStallMs = nowMs
    this.#cancel = null
    const all = expected()
    if (all.length === 0) return
    this.#schedule()
    for (const one of all) one.silentMs += intervalMs
    const hung = all.filter(({ silentMs }) => silentMs >= maxSilenceMs())
    onCheck?.(all)
    if (hung.length > 0) onHung(hung)
  }
}
