/** How many jobs go into a message: one when idle, a few milliseconds of work under backlog. */

import { bankSize } from './mailbox.ts'

/** How long a batch should last. Longer ones hold jobs back that another worker could run. */
const batchMs = 3
/** With jobs up to this long, a worker would notice the wait for its next batch. */
const shortJobMs = 1
/** One slow job among fast ones must not end the batching of those that follow. */
const longestSampleMs = 50
const weight = 0.05

/** The recent mean duration of jobs, old ones forgotten. */
export class JobDurations {
  #meanMs: number | null = null

  add(ms: number): void {
    const sample = Math.min(Math.max(0, ms), longestSampleMs)
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
