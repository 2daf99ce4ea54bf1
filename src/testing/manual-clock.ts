/** A clock for tests: time passes only when the test advances it. */

import type { Clock } from '../foundation/clock.ts'

interface Timer {
  readonly due: number
  readonly callback: () => void
}

/**
 * Timers fire only during `advance`, in the order of their due times.
 *
 * @example
 * const clock = new ManualClock()
 * await using session = new Session([backend], { clock })
 * await clock.advance(60_000) // a minute has passed, and time-outs fire
 */
export class ManualClock implements Clock {
  #wallSeconds: number
  #elapsedMs = 0
  readonly #timers = new Set<Timer>()

  constructor(wallSeconds = 1_700_000_000) {
    this.#wallSeconds = wallSeconds
  }

  now(): number {
    return this.#wallSeconds + this.#elapsedMs / 1000
  }

  monotonicMs(): number {
    return this.#elapsedMs
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { due: this.#elapsedMs + Math.max(0, ms), callback }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  nextTurn(callback: () => void): void {
    setImmediate(callback)
  }

  /** The number of timers that have neither fired nor been canceled. */
  get pendingTimers(): number {
    return this.#timers.size
  }

  /** Advances the time, fires timers that become due, and lets pending promises settle. */
  async advance(ms: number): Promise<void> {
    const target = this.#elapsedMs + ms
    for (;;) {
      const next = this.#earliestUpTo(target)
      if (next === undefined) break
      this.#elapsedMs = Math.max(this.#elapsedMs, next.due)
      this.#timers.delete(next)
      next.callback()
      await new Promise((resolve) => setImmediate(resolve))
    }
    this.#elapsedMs = target
    await new Promise((resolve) => setImmediate(resolve))
  }

  /** Changes only the wall clock, as a user or NTP would. */
  stepWall(seconds: number): void {
    this.#wallSeconds += seconds
  }

  #earliestUpTo(target: number): Timer | undefined {
    let earliest: Timer | undefined
    for (const timer of this.#timers) {
      if (timer.due <= target && (earliest === undefined || timer.due < earliest.due)) {
        earliest = timer
      }
    }
    return earliest
  }
}
