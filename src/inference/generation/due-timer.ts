/** One timer that is set to a moment instead of a length. */

import type { Clock } from '../../foundation/clock.ts'

/** Set anew, it forgets what was set before. */
export class DueTimer {
  readonly #clock: Clock
  readonly #ring: () => void
  #dueMs = Infinity
  #cancel = (): void => {}

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock
    this.#ring = ring
  }

  /** When it rings next, on the monotonic clock; `Infinity` when it does not. */
  get dueMs(): number {
    return this.#dueMs
  }

  /** `Infinity` clears it. */
  set(dueMs: number): void {
    if (dueMs === this.#dueMs) return
    this.#cancel()
    this.#dueMs = dueMs
    if (dueMs === Infinity) return
    const waitMs = Math.max(0, dueMs - this.#clock.monotonicMs())
    this.#cancel = this.#clock.after(waitMs, () => {
      this.#dueMs = Infinity
      this.#ring()
    })
  }
}
