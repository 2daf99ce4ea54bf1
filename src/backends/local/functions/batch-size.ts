/** The number of jobs per message: one when idle, a few milliseconds of work under backlog. */

import { bankSize } from './mailbox.ts'

/** The intended duration of a batch. A longer batch would withhold jobs from idle workers. */
const targetBatchMs = 3
/** Workers prefetch the next batch if the mean duration is below this. */
const shortJobMs = 1
/** The maximum value of a sample, so that a single slow job does not stop batching. */
const maxSampleMs = 50
const sampleWeight = 0.05

/** A moving average of the durations of recent jobs. */
export class JobDurations {
  #meanMs: number | null = null

  add(ms: number): void {
    const sample = Math.min(Math.max(0, ms), maxSampleMs)
    this.#meanMs =
      this.#meanMs === null ? sample : this.#meanMs + (sample - this.#meanMs) * sampleWeight
  }

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
  const maxInTime = Math.floor(targetBatchMs / Math.max(meanMs, 1e-6))
  return Math.max(1, Math.min(share, maxInTime, bankSize))
}
