/** Adapts the number of workers to the load, once a second. */

import type { Clock } from '../../foundation/clock.ts'
import type { DynamicWorkersConfig } from '../config/config-sections.ts'
import type { Batcher } from './batcher.ts'
import type { EnginePool } from './engine-pool.ts'

export interface AutoscalerParts {
  readonly clock: Clock
  readonly batcher: Batcher
  readonly pool: EnginePool
  readonly config: ScaleConfig
}

const tickIntervalMs = 1000
const maxArrivals = 64
const arrivalWindowMs = 3000

export class Autoscaler {
  readonly #parts: AutoscalerParts
  readonly #arrivals: number[] = []
  #state: ScaleState = initialScaleState
  #stopTimer: () => void = () => {}

  constructor(parts: AutoscalerParts) {
    this.#parts = parts
  }

  start(): void {
    this.#stopTimer = this.#parts.clock.after(tickIntervalMs, () => this.#tick(), {
      background: true,
    })
  }

  stop(): void {
    this.#stopTimer()
  }

  recordArrival(): void {
    if (this.#arrivals.length === maxArrivals) this.#arrivals.shift()
    this.#arrivals.push(this.#parts.clock.monotonicMs())
  }

  #tick(): void {
    const { clock, batcher, pool, config } = this.#parts
    const nowMs = clock.monotonicMs()
    while ((this.#arrivals[0] ?? Infinity) < nowMs - arrivalWindowMs) this.#arrivals.shift()
    const { queued, running } = batcher
    const { state, target } = decideScale(config, this.#state, {
      nowMs,
      running,
      queued,
      workers: pool.size,
      starting: pool.size - pool.workers,
      oldestWaitMs: batcher.oldestWaitMs(),
      recentArrivals: this.#arrivals.length,
    })
    this.#state = state
    pool.resize(target)
    this.start()
  }
}

export type ScaleConfig = Omit<DynamicWorkersConfig, 'isOn'>

export interface ScaleInput {
  readonly nowMs: number
  readonly running: number
  readonly queued: number
  /** Workers that serve, start or wait for a restart, but not draining ones. */
  readonly workers: number
  readonly starting: number
  readonly oldestWaitMs: number
  readonly recentArrivals: number
}

export interface ScaleState {
  /** The smoothed number of open requests; `null` before the first tick. */
  readonly load: number | null
  readonly lastTickMs: number
  /** The time since which the load has needed more workers; `null` if it does not need more. */
  readonly aboveSinceMs: number | null
  readonly belowSinceMs: number | null
  /** When workers were last added, or their number was last moved into its bounds. */
  readonly lastRaisedMs: number
}

export const initialScaleState: ScaleState = {
  load: null,
  lastTickMs: 0,
  aboveSinceMs: null,
  belowSinceMs: null,
  lastRaisedMs: -Infinity,
}

/** The time constant of the smoothing: after this time, an old load has a weight of 1/e. */
const smoothingMs = 2000
const burstArrivals = 5

/** The number of workers follows the smoothed load, and at most doubles per step. Pure. */
export function decideScale(
  config: ScaleConfig,
  state: ScaleState,
  input: ScaleInput,
): { readonly state: ScaleState; readonly target: number } {
  const { nowMs, workers } = input
  const loadNow = input.running + input.queued
  const load = smoothLoad(state, nowMs, loadNow)
  const isBurst = input.recentArrivals >= burstArrivals
  const relevantLoad = isBurst ? Math.max(load, loadNow) : load
  const wanted = Math.ceil(relevantLoad / config.targetOngoingRequests)
  const target = clampWorkers(config, workers)
  const next = { ...initialScaleState, load, lastTickMs: nowMs, lastRaisedMs: state.lastRaisedMs }
  if (target !== workers) return { state: { ...next, lastRaisedMs: nowMs }, target }

  const spinUpMs = config.spinUpSeconds * 1000
  // A new worker must have time to shorten the queue before another one is added.
  const isSettled = input.starting === 0 && nowMs - state.lastRaisedMs >= Math.max(spinUpMs, 1000)
  const hasLongWait = input.oldestWaitMs > spinUpMs && isSettled
  const needed = clampWorkers(config, hasLongWait ? Math.max(wanted, workers + 1) : wanted)
  if (needed > workers) {
    const aboveSinceMs = state.aboveSinceMs ?? nowMs
    const isSustained = isBurst || nowMs - aboveSinceMs >= spinUpMs
    // The smoothed load stays high after a peak, so the current load must be high as well.
    const isLoaded = loadNow > workers * config.targetOngoingRequests
    const isDue = hasLongWait || (isSustained && isLoaded)
    if (!isDue) return { state: { ...next, aboveSinceMs }, target }
    return { state: { ...next, lastRaisedMs: nowMs }, target: Math.min(needed, workers * 2) }
  }
  if (needed < workers) {
    const belowSinceMs = state.belowSinceMs ?? nowMs
    const isDue = nowMs - belowSinceMs >= config.spinDownSeconds * 1000
    if (!isDue) return { state: { ...next, belowSinceMs }, target }
    return { state: { ...next, belowSinceMs: nowMs }, target: workers - 1 }
  }
  return { state: next, target }
}

function smoothLoad({ load, lastTickMs }: ScaleState, nowMs: number, loadNow: number): number {
  if (load === null) return loadNow
  const share = 1 - Math.exp(-Math.max(0, nowMs - lastTickMs) / smoothingMs)
  return load + share * (loadNow - load)
}

const clampWorkers = ({ minWorkers, maxWorkers }: ScaleConfig, workers: number): number =>
  Math.min(maxWorkers, Math.max(minWorkers, workers))
