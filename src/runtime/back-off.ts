/** When the next attempt may be made after failures in a row. Knows no timer. */

export interface BackOffOptions {
  /** The delay after the first failure; it doubles with each further failure in a row. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /** Failures in a row after which it gives up until the delay is over. Default: never. */
  readonly giveUpAfter?: number
}

/** The delay after so many failures in a row: the first one, then `factor` times the one before. */
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

  /** Too many failures in a row, and it is not yet time for another attempt. */
  hasGivenUp(nowMs: number): boolean {
    const { giveUpAfter = Infinity } = this.#options
    return this.#failures >= giveUpAfter && nowMs < this.#notBeforeMs
  }
}

/**
 * When something that is started again and again may be started next: at once while starts succeed,
 * one for each delay after one has failed.
 */
export class PacedStarts {
  readonly #options: Required<BackOffOptions>
  #failures = 0
  /** Grows with each failure of a start that was made after the last delay began. */
  #round = 0
  /** Such failures since the last success. */
  #delays = 0
  #delayMs = 0
  #notBeforeMs = -Infinity
  #lastError: unknown

  constructor(options: Required<BackOffOptions>) {
    this.#options = options
  }

  /** Failures since the last success. */
  get failures(): number {
    return this.#failures
  }

  get lastError(): unknown {
    return this.#lastError
  }

  /** When the next start may be made; in the past when it may be made now. */
  get notBeforeMs(): number {
    return this.#notBeforeMs
  }

  mayStart(nowMs: () => number): boolean {
    return this.#failures === 0 || nowMs() >= this.#notBeforeMs
  }

  /** One is started now. Returns its round, which `fail` needs. */
  begin(nowMs: number): number {
    if (this.#failures > 0) this.#notBeforeMs = nowMs + this.#delayMs
    return this.#round
  }

  /** The start failed. `true` when that began a new delay: those that failed together share one. */
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

  /** One has started. `true` when that ended a delay. */
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

  /** Too many failures in a row, and it is not yet time for another start. */
  hasGivenUp(nowMs: number): boolean {
    return this.#failures >= this.#options.giveUpAfter && nowMs < this.#notBeforeMs
  }
}
