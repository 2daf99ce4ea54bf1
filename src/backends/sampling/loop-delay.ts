/** Measures how late the event loop of this process runs its timers. */

import { monitorEventLoopDelay } from 'node:perf_hooks'

const resolutionMs = 20

export class LoopDelay {
  #histogram: ReturnType<typeof monitorEventLoopDelay> | null = null

  /** Starts the measurement, which does not keep the process alive. */
  start(): void {
    this.#histogram ??= monitorEventLoopDelay({ resolution: resolutionMs })
    this.#histogram.enable()
  }

  /** Returns the maximum since the last call in milliseconds; `null` if nothing was measured. */
  readMaxMs(): number | null {
    const histogram = this.#histogram
    if (histogram === null || histogram.count === 0) return null
    // The histogram contains times from one timer to the next, so the timers' interval is
    // subtracted.
    const ms = Math.max(0, histogram.max / 1e6 - resolutionMs)
    histogram.reset()
    return Math.round(ms * 10) / 10
  }

  stop(): void {
    this.#histogram?.disable()
    this.#histogram = null
  }
}
