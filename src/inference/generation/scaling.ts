/** Decides how many workers there should be; acting on it is the autoscaler's. Pure. */

import type { DynamicWorkersConfig } from '../config/inference-config.ts'

export type ScaleConfig = Omit<DynamicWorkersConfig, 'isOn'>

/** What is seen at one tick. */
export interface ScaleInput {
  /** Monotonic. */
  readonly nowMs: number
  /** Requests that workers have. */
  readonly running: number
  /** Requests that wait. */
  readonly queued: number
  /** Workers that run or start; those that are on their way out do not count. */
  readonly workers: number
  /** Those of them that do not serve yet. */
  readonly starting: number
  /** How long the oldest waiting request has waited; 0 when none does. */
  readonly oldestWaitMs: number
  /** Prompts that came within the last 3 seconds. */
  readonly recentArrivals: number
}

/** What is remembered from tick to tick. */
export interface ScaleState {
  /** Smoothed; `null` before the first tick. */
  readonly load: number | null
  readonly seenMs: number
  /** Since when more workers were wanted than there are, without a pause. */
  readonly aboveSinceMs: number | null
  /** Since when fewer were. */
  readonly belowSinceMs: number | null
  /** When workers were last added. */
  readonly raisedMs: number
}

export const initialScale: ScaleState = {
  load: null,
  seenMs: 0,
  aboveSinceMs: null,
  belowSinceMs: null,
  raisedMs: -Infinity,
}

/** The load of this long ago counts about a third of today's. */
const memoryMs = 2000
const burstArrivals = 5

/**
 * The wanted number follows the smoothed load. More come when more were wanted for `spinUpSeconds`,
 * at once in a burst or when the queue is old, and never more than as many again; one goes when
 * fewer were wanted for `spinDownSeconds`. The target is always within the configured bounds.
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
  // An old queue says that a worker does less than was thought; a new one needs time to tell.
  const hasTold = input.starting === 0 && nowMs - state.raisedMs >= Math.max(spinUpMs, 1000)
  const isOld = input.oldestWaitMs > spinUpMs && hasTold
  const needed = clamp(config, isOld ? Math.max(wanted, workers + 1) : wanted)
  if (needed > workers) {
    const aboveSinceMs = state.aboveSinceMs ?? nowMs
    const isLasting = isBurst || nowMs - aboveSinceMs >= spinUpMs
    // The smoothed load outlives a peak; what is gone needs no worker.
    const isThere = loadNow > workers * config.targetOngoingRequests
    if (!isOld && !(isLasting && isThere)) {
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
  const share = 1 - Math.exp(-Math.max(0, nowMs - seenMs) / memoryMs)
  return load + share * (loadNow - load)
}

const clamp = ({ minWorkers, maxWorkers }: ScaleConfig, workers: number): number =>
  Math.min(maxWorkers, Math.max(minWorkers, workers))

const wantedFor = (config: ScaleConfig, load: number): number =>
  Math.ceil(load / config.targetOngoingRequests)
