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

const tickMs = 1000
const maxArrivals = 64
/** How long an arrival counts as recent. */
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

  /** Records the arrival of a prompt. Keeps only the latest `maxArrivals`. */
  arrived(): void {
    if (this.#arrivals.length === maxArrivals) this.#arrivals.shift()
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

export type ScaleConfig = Omit<DynamicWorkersConfig, 'isOn'>

/** The load at one tick. */
export interface ScaleInput {
  /** The time of the tick, on the monotonic clock. */
  readonly nowMs: number
  /** Requests in an engine. */
  readonly running: number
  /** Requests in the queue. */
  readonly queued: number
  /** The number of workers that serve, start or wait for a restart, without draining workers. */
  readonly workers: number
  /** The number of these workers that do not serve yet. */
  readonly starting: number
  /** How long the oldest queued request has waited; 0 if the queue is empty. */
  readonly oldestWaitMs: number
  /** Prompts that arrived within the last 3 seconds. */
  readonly recentArrivals: number
}

/** The state that is carried from one tick to the next. */
export interface ScaleState {
  /** The smoothed number of open requests; `null` before the first tick. */
  readonly load: number | null
  readonly seenMs: number
  /** Since when more workers have been wanted than there are, without interruption. */
  readonly aboveSinceMs: number | null
  /** Since when fewer workers have been wanted than there are, without interruption. */
  readonly belowSinceMs: number | null
  /** When workers were last added, or their number was last moved into its bounds. */
  readonly raisedMs: number
}

export const initialScale: ScaleState = {
  load: null,
  seenMs: 0,
  aboveSinceMs: null,
  belowSinceMs: null,
  raisedMs: -Infinity,
}

/** The time constant of the smoothing: after this time, an old load has the weight 1/e. */
const smoothingMs = 2000
const burstArrivals = 5

/**
 * Decides how many workers there should be. Pure. The wanted number follows the smoothed load.
 * Workers are added when more have been wanted for `spinUpSeconds`, and immediately in a burst or
 * when the oldest request has waited too long; each time their number at most doubles. One worker
 * is removed when fewer have been wanted for `spinDownSeconds`. The target is always within the
 * configured bounds.
 */
export function decideScale(
  config: ScaleConfig,
  state: ScaleState,
  input: ScaleInput,
): { readonly state: ScaleState; readonly target: number } {
  const { nowMs, workers } = input
  const loadNow = input.running + input.queued
  const load = smooth(state, nowMs, loadNow)
  const isBurst = input.recentArrivals >= burstArrivals
  const wanted = wantedFor(config, isBurst ? Math.max(load, loadNow) : load)
  const target = clamp(config, workers)
  const base = { load, seenMs: nowMs, aboveSinceMs: null, belowSinceMs: null }
  if (target !== workers) return { state: { ...base, raisedMs: nowMs }, target }

  const spinUpMs = config.spinUpSeconds * 1000
  // A long wait means that a worker handles fewer requests than assumed. A new worker must have
  // time to shorten the queue before another one is added.
  const hasHelped = input.starting === 0 && nowMs - state.raisedMs >= Math.max(spinUpMs, 1000)
  const isOld = input.oldestWaitMs > spinUpMs && hasHelped
  const needed = clamp(config, isOld ? Math.max(wanted, workers + 1) : wanted)
  if (needed > workers) {
    const aboveSinceMs = state.aboveSinceMs ?? nowMs
    const isLasting = isBurst || nowMs - aboveSinceMs >= spinUpMs
    // The smoothed load stays high after a peak, so the current load must be high as well.
    const isLoaded = loadNow > workers * config.targetOngoingRequests
    if (!isOld && !(isLasting && isLoaded)) {
      return { state: { ...base, aboveSinceMs, raisedMs: state.raisedMs }, target }
    }
    return { state: { ...base, raisedMs: nowMs }, target: Math.min(needed, workers * 2) }
  }
  if (needed < workers) {
    const belowSinceMs = state.belowSinceMs ?? nowMs
    const isDue = nowMs - belowSinceMs >= config.spinDownSeconds * 1000
    const kept = { ...base, belowSinceMs: isDue ? nowMs : belowSinceMs, raisedMs: state.raisedMs }
    return { state: kept, target: isDue ? workers - 1 : workers }
  }
  return { state: { ...base, raisedMs: state.raisedMs }, target }
}

function smooth({ load, seenMs }: ScaleState, nowMs: number, loadNow: number): number {
  if (load === null) return loadNow
  const share = 1 - Math.exp(-Math.max(0, nowMs - seenMs) / smoothingMs)
  return load + share * (loadNow - load)
}

const clamp = ({ minWorkers, maxWorkers }: ScaleConfig, workers: number): number =>
  Math.min(maxWorkers, Math.max(minWorkers, workers))

const wantedFor = (config: ScaleConfig, load: number): number =>
  Math.ceil(load / config.targetOngoingRequests)
