/** Decides when the next worker may start, so that a program that crashes at once is no storm. */

const mostInARow = 5
const firstDelayMs = 1000
const longestDelayMs = 30_000

export class StartFailures {
  #inARow = 0
  #notBeforeMs = -Infinity
  #lastError: unknown

  /** A worker ended before it had begun a job. */
  add(error: unknown, nowMs: number): void {
    this.#inARow++
    this.#lastError = error
    this.#notBeforeMs = nowMs + Math.min(longestDelayMs, firstDelayMs * 2 ** (this.#inARow - 1))
  }

  /** A worker has begun a job. */
  clear(): void {
    this.#inARow = 0
    this.#notBeforeMs = -Infinity
    this.#lastError = undefined
  }

  /** How long a start has to wait. */
  delayMs(nowMs: number): number {
    return Math.max(0, this.#notBeforeMs - nowMs)
  }

  /** Too many failures in a row, and not yet time for another attempt. */
  isHopeless(nowMs: number): boolean {
    return this.#inARow >= mostInARow && nowMs < this.#notBeforeMs
  }

  get lastError(): unknown {
    return this.#lastError
  }

  get inARow(): number {
    return this.#inARow
  }
}
