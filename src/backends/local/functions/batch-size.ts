/** How many jobs go into a message: one when idle, a few milliseconds of work under backlog. */

import { bankSize } from './mailbox.ts'

/**
 * The intended duration of a batch. A longer one would hold back jobs that another worker could
 * run.
 */
const batchMs = 3
/** Below this mean duration, a worker prefetches its next batch instead of waiting for it. */
const shortJobMs = 1
/** Caps a sample, so that one slow job among fast ones does not stop batching. */
const maxSampleMs = 50
const weight = 0.05

/** A moving average of the durations of recent jobs. */
export class JobDurations {
  #meanMs: number | null = null

  add(ms: number): void {
    const sample = Math.min(Math.max(0, ms), maxSampleMs)
    this.#meanMs = this.#meanMs === null ? sample : this.#meanMs + (sample - this.#meanMs) * weight
  }

  /** `null` before the first job. */
  get meanMs(): number | null {
    return this.#meanMs
  }

  get areShort(): boolean {
    return this.#meanMs !== null && this.#meanMs < shortJobMs
  }
}

export function chooseBatchSize(waiting: number, workers: number, meanMs: number | null): number {
  if (meanMs === null) return 1
  const share = Math.ceil(waiting / workers)
  const inTime = Math.floor(batchMs / Math.max(meanMs, 1e-6))
  return Math.max(1, Math.min(share, inTime, bankSize))
}
