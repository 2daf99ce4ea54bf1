/** Detects that one of several processes sends no signs of life although it should. */

import type { Clock } from '../foundation/clock.ts'

/** A process, or another thing, that is watched. */
export interface Watched {
  /** How long it was silent at the last check; below 0 if it was heard since. */
  silentMs: number
}

export interface SilenceWatchOptions<One extends Watched> {
  readonly clock: Clock
  readonly intervalMs: number
  /** Those that are silent for so long count as hung. */
  readonly hungMs: () => number
  /** Those that should give signs of life now. The timer runs only while there are some. */
  readonly expected: () => readonly One[]
  /** Called at each check, for instance to ping. */
  readonly onCheck?: (expected: readonly One[]) => void
  readonly onHung: (hung: readonly One[]) => void
}

/**
 * Counts checks instead of time: while this process is suspended or busy, it hears nothing, and
 * signs of life may be waiting to be read.
 */
export class SilenceWatch<One extends Watched> {
  readonly #options: SilenceWatchOptions<One>
  #checkedMs = 0
  #lastStallMs = -Infinity
  #cancel: (() => void) | null = null

  constructor(options: SilenceWatchOptions<One>) {
    this.#options = options
  }

  /** When a check was last late by an interval. */
  get lastStallMs(): number {
    return this.#lastStallMs
  }

  /** To be called when one gives a sign of life, and when one is expected to from now on. */
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
