/**
 * How many programs may run at once: fewer after the system refused one, more as others succeed.
 */

import { BackOff } from '../../../runtime/back-off.ts'

export class ConcurrencyLimit {
  readonly #most: number
  #limit: number
  /** The lowest limit since it was last at its maximum: only a lower one is reported. */
  #lowest: number
  #successes = 0
  readonly #backOff = new BackOff({ firstDelayMs: 20, maxDelayMs: 1000 })

  constructor(most: number) {
    this.#most = most
    this.#limit = most
    this.#lowest = most
  }

  get limit(): number {
    return this.#limit
  }

  /** The delay before the next attempt; it doubles with each refusal in a row. */
  nextPauseMs(nowMs: number): number {
    return this.#backOff.fail(nowMs)
  }

  /** The system refused one more than `running`. `true` for a new lowest limit. */
  refuse(running: number): boolean {
    this.#limit = Math.max(1, Math.min(running, this.#limit))
    this.#successes = 0
    const isNews = this.#limit < this.#lowest
    this.#lowest = Math.min(this.#limit, this.#lowest)
    return isNews
  }

  /** A program ended. As many successes as the limit raise it by one. */
  succeed(): void {
    this.#backOff.reset()
    if (this.#limit === this.#most || ++this.#successes < this.#limit) return
    this.#successes = 0
    if (++this.#limit === this.#most) this.#lowest = this.#most
  }
}
