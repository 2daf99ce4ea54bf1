/** Decides when the next attempt may be made after failures in a row. Knows no timer. */

export interface BackOffOptions {
  /** The delay after the first failure; it doubles with each further failure in a row. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /** Failures in a row after which it gives up until the delay is over. Default: never. */
  readonly giveUpAfter?: number
}

/** Times are those of `Clock.monotonicMs()`. */
export class BackOff {
  readonly #options: BackOffOptions
  #failures = 0
  #notBeforeMs = -Infinity
  #lastError: unknown

  constructor(options: BackOffOptions) {
    this.#options = options
  }

  /** Failures since the last success. */
  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  /** An attempt failed. Returns the delay before the next one. */
  fail(nowMs: number, error?: unknown): number {
    const { firstDelayMs, maxDelayMs } = this.#options
    const delayMs = Math.min(maxDelayMs, firstDelayMs * 2 ** this.#failures++)
    this.#notBeforeMs = nowMs + delayMs
    this.#lastError = error
    return delayMs
  }

  /** An attempt succeeded: the next failure counts as the first. */
  reset(): void {
    this.#failures = 0
    this.#notBeforeMs = -Infinity
    this.#lastError = undefined
  }

  /** How long the next attempt has to wait. */
  delayMs(nowMs: number): number {
    return Math.max(0, this.#notBeforeMs - nowMs)
  }

  /** Too many failures in a row, and it is not yet time for another attempt. */
  hasGivenUp(nowMs: number): boolean {
    const { giveUpAfter = Infinity } = this.#options
    return this.#failures >= giveUpAfter && nowMs < this.#notBeforeMs
  }
}
