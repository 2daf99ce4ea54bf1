/** Decides which worker gets how many of the waiting requests, and when. Pure: it moves nothing. */

import type { EngineCapacity } from './inference-engine.ts'

export interface BatchPolicy {
  /**
   * `adaptive` sends at once while a worker is free. `fixed` waits until the batch is full, or its
   * oldest request has waited `maxBatchWaitMs`.
   */
  readonly type: 'adaptive' | 'fixed'
  readonly maxBatchSize: number
  readonly maxBatchWaitMs: number
  /** Off: each request goes alone, at once, as workers are free. */
  readonly isOn: boolean
}

/** The waiting line, as far as it matters here. */
export interface LineFacts {
  readonly queued: number
  /** When the oldest came, on the clock of `nowMs`. */
  readonly oldestMs: number
  readonly nowMs: number
  /** Nothing is gained by waiting: no more will come, or the first one has waited before. */
  readonly isUrgent: boolean
}

/** A worker, as far as it matters here. */
export interface WorkerLoad {
  readonly capacity: EngineCapacity
  /** Requests that it has. */
  readonly running: number
  /** It gets no more. */
  readonly isLeaving: boolean
}

export type BatchDecision<W extends WorkerLoad> =
  | { readonly kind: 'send'; readonly to: W; readonly size: number }
  /** Look again at this time at the latest. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  /** Look again when a request comes or a worker has room. */
  | { readonly kind: 'rest' }

const rest = { kind: 'rest' } as const

/** What to do now. After a `send`, ask again. */
export function decideBatch<W extends WorkerLoad>(
  policy: BatchPolicy,
  line: LineFacts,
  workers: Iterable<W>,
): BatchDecision<W> {
  if (line.queued === 0) return rest
  const { freest, places, load } = survey(workers)
  if (freest === undefined) return rest
  if (!policy.isOn) return { kind: 'send', to: freest, size: 1 }
  const most = Math.min(policy.maxBatchSize, freeSlots(freest), line.queued)
  if (policy.type === 'adaptive') {
    const share = Math.ceil((line.queued + load) / places) - freest.running
    // Step workers fill evenly; a batch worker would block the rest, so it takes all it can.
    const size = freest.capacity.admits === 'step' ? Math.min(most, Math.max(1, share)) : most
    return { kind: 'send', to: freest, size }
  }
  const untilMs = line.oldestMs + policy.maxBatchWaitMs
  const isFull = line.queued >= Math.min(policy.maxBatchSize, freest.capacity.slots)
  const isDue = isFull || line.isUrgent || line.nowMs >= untilMs
  return isDue ? { kind: 'send', to: freest, size: most } : { kind: 'wait', untilMs }
}

/** How many requests a worker can take now. */
function freeSlots({ capacity, running, isLeaving }: WorkerLoad): number {
  if (isLeaving || (capacity.admits === 'batch' && running > 0)) return 0
  return Math.max(0, capacity.slots - running)
}

/** The worker with the most room, and what those with room have together. */
function survey<W extends WorkerLoad>(
  workers: Iterable<W>,
): { freest: W | undefined; places: number; load: number } {
  let freest: W | undefined
  let [most, places, load] = [0, 0, 0]
  for (const worker of workers) {
    const free = freeSlots(worker)
    if (free === 0) continue
    places++
    load += worker.running
    if (free <= most) continue
    most = free
    freest = worker
  }
  return { freest, places, load }
}
