/** Detects that one of several watched processes sends no signs of life although it should. */

import type { Clock } from '../foundation/clock.ts'

/** A watched process, or anything else that gives signs of life. */
export interface Watched {
  /** How long the process was silent at the last check; negative after a later sign of life. */
  silentMs: number
}

export interface SilenceWatchOptions<One extends Watched> {
  readonly clock: Clock
  readonly intervalMs: number
  /** How long a process may be silent before it counts as hung. */
  readonly hungMs: () => number
  /** The processes that should give signs of life now. The timer runs only while there are any. */
  readonly expected: () => readonly One[]
  /** Called at each check, for example to ping the processes. */
  readonly onCheck?: (expected: readonly One[]) => void
  readonly onHung: (hung: readonly One[]) => void
}

/**
 * Counts checks instead of time, because signs of life may be waiting to be read after this process
 * was suspended or busy.
 */
export class SilenceWatch<One extends Watched> {
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

  /** Must be called for each sign of life, and when signs of life begin to be expected. */
  sign(one: One): void {
    const { clock, intervalMs } = this.#options
    if (this.#cancel === null) this.#plan()
    one.silentMs = Math.max(-intervalMs, this.#checkedMs - clock.monotonicMs())
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = null
  }

  #plan(): void {
    const { clock, intervalMs } = this.#options
    this.#checkedMs = clock.monotonicMs()
    this.#cancel = clock.after(intervalMs, () => this.#check(), { background: true })
  }

  #check(): void {
    const { clock, intervalMs, hungMs, expected, onCheck, onHung } = this.#options
    const nowMs = clock.monotonicMs()
    if (nowMs - this.#checkedMs >= 2 * intervalMs) this.#lastStallMs = nowMs
    this.#cancel = null
    const all = expected()
    if (all.length === 0) return
    this.#plan()
    for (const one of all) one.silentMs += intervalMs
    const hung = all.filter(({ silentMs }) => silentMs >= hungMs())
    onCheck?.(all)
    if (hung.length > 0) onHung(hung)
  }
}
