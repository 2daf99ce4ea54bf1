/** Computes when the next attempt may be made after consecutive failures. Uses no timer. */

export interface BackOffOptions {
  /** The delay after the first failure; it doubles with each further consecutive failure. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /**
   * The number of consecutive failures after which `hasGivenUp` is true until the delay is over.
   * Default: never.
   */
  readonly giveUpAfter?: number
}

/** The delay after so many consecutive failures: `first`, then `factor` times the previous one. */
export function backOffDelay(
  failures: number,
  { first, max, factor = 2 }: { readonly first: number; readonly max: number; factor?: number },
): number {
  return failures === 0 || first === 0 ? 0 : Math.min(max, first * factor ** (failures - 1))
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

  /** The number of failures since the last success. */
  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  /** An attempt failed. Returns the delay before the next one. */
  fail(nowMs: number, error?: unknown): number {
    const { firstDelayMs, maxDelayMs } = this.#options
    this.#failures++
    const delayMs = backOffDelay(this.#failures, { first: firstDelayMs, max: maxDelayMs })
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

  /** Whether there were too many consecutive failures, and the next attempt is not due yet. */
  hasGivenUp(nowMs: number): boolean {
    const { giveUpAfter = Infinity } = this.#options
    return this.#failures >= giveUpAfter && nowMs < this.#notBeforeMs
  }
}

/**
 * Paces the starts of things that are started repeatedly: at once while starts succeed, one per
 * delay after one has failed.
 */
export class PacedStarts {
  readonly #options: Required<BackOffOptions>
  #failures = 0
  /** Incremented by each failure of a start that was made after the last delay began. */
  #round = 0
  /** The number of such failures since the last success. */
  #delays = 0
  #delayMs = 0
  #notBeforeMs = -Infinity
  #lastError: unknown

  constructor(options: Required<BackOffOptions>) {
    this.#options = options
  }

  /** The number of failures since the last success. */
  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  /** The earliest time of the next start; in the past if it may be made now. */
  get notBeforeMs(): number {
    return this.#notBeforeMs
  }

  mayStart(nowMs: () => number): boolean {
    return this.#failures === 0 || nowMs() >= this.#notBeforeMs
  }

  /** A start is made now. Returns its round, which `fail` needs. */
  begin(nowMs: number): number {
    if (this.#failures > 0) this.#notBeforeMs = nowMs + this.#delayMs
    return this.#round
  }

  /** The start failed. `true` if this began a new delay: simultaneous failures share one. */
  fail(round: number, nowMs: number, error: unknown): boolean {
    const { firstDelayMs, maxDelayMs } = this.#options
    this.#failures++
    this.#lastError = error
    if (round !== this.#round) return false
    this.#round++
    this.#delays++
    this.#delayMs = backOffDelay(this.#delays, { first: firstDelayMs, max: maxDelayMs })
    this.#notBeforeMs = nowMs + this.#delayMs
    return true
  }

  /** A start succeeded. `true` if this ended a delay. */
  succeed(): boolean {
    if (this.#failures === 0) return false
    this.#failures = 0
    this.#round++
    this.#delays = 0
    this.#delayMs = 0
    this.#notBeforeMs = -Infinity
    this.#lastError = undefined
    return true
  }

  /** Whether there were too many consecutive failures, and the next start is not due yet. */
  hasGivenUp(nowMs: number): boolean {
    return this.#failures >= this.#options.giveUpAfter && nowMs < this.#notBeforeMs
  }
}
