/** Asks every second how many workers are wanted, and tells the pool. */

import type { Clock } from '../../foundation/clock.ts'
import type { Batcher } from './batcher.ts'
import type { EnginePool } from './engine-pool.ts'
import { decideScale, initialScale, type ScaleConfig, type ScaleState } from './scaling.ts'

export interface AutoscalerParts {
  readonly clock: Clock
  readonly batcher: Batcher
  readonly pool: EnginePool
  readonly config: ScaleConfig
}

const tickMs = 1000
/** Prompts within this time before a tick are recent. */
const recentMs = 3000

export class Autoscaler {
  readonly #parts: AutoscalerParts
  readonly #arrivals: number[] = []
  #state: ScaleState = initialScale
  #stopTimer: () => void = () => {}

  constructor(parts: AutoscalerParts) {
    this.#parts = parts
  }

  start(): void {
    this.#stopTimer = this.#parts.clock.after(tickMs, () => this.#tick(), { background: true })
  }

  stop(): void {
    this.#stopTimer()
  }

  /** A prompt has come. Only as many are kept as matter. */
  arrived(): void {
    if (this.#arrivals.length === mostKept) this.#arrivals.shift()
    this.#arrivals.push(this.#parts.clock.monotonicMs())
  }

  #tick(): void {
    const { clock, batcher, pool, config } = this.#parts
    const nowMs = clock.monotonicMs()
    while ((this.#arrivals[0] ?? Infinity) < nowMs - recentMs) this.#arrivals.shift()
    const { queued, running } = batcher
    const { state, target } = decideScale(config, this.#state, {
      nowMs,
      running,
      queued,
      workers: pool.staying,
      starting: pool.staying - pool.workers,
      oldestWaitMs: batcher.oldestWaitMs(),
      recentArrivals: this.#arrivals.length,
    })
    this.#state = state
    pool.resize(target)
    this.start()
  }
}

const mostKept = 64
