/** Decides which worker gets how many of the queued requests, and when. Pure. */

import type { EngineCapacity, GenerationListener, GenerationRequest } from './inference-engine.ts'

export interface BatchPolicy {
  /**
   * `adaptive` sends immediately while a worker is free. `fixed` waits until the batch is full or
   * its oldest request has waited for `maxBatchWaitMs`.
   */
  readonly type: 'adaptive' | 'fixed'
  readonly maxBatchSize: number
  readonly maxBatchWaitMs: number
  /** If `false`, every request is sent alone as soon as a worker is free. */
  readonly isOn: boolean
}

/** What `decideBatch` needs to know about the queue. */
export interface QueueFacts {
  readonly queued: number
  /** The arrival time of the oldest request, on the same clock as `nowMs`. */
  readonly oldestMs: number
  readonly nowMs: number
  /** Whether not to wait for a fuller batch: no more requests will come, or the next is a retry. */
  readonly isUrgent: boolean
}

/** What `decideBatch` needs to know about a worker. */
export interface WorkerLoad {
  readonly capacity: EngineCapacity
  /** The number of requests that the worker has now. */
  readonly running: number
  /** If `true`, the worker gets no more requests. */
  readonly isDraining: boolean
}

/** An engine as the batcher sees it. */
export interface BatchWorker {
  readonly workerId: string
  /** The node that runs the model. Absent if the model runs on this machine. */
  readonly nodeId?: string | undefined
  readonly capacity: EngineCapacity
  /** Has the contract of `InferenceEngine.generate`. */
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** Called when the worker still has a request long after that request was aborted. */
  giveUp?(reason: string): void
}

/** A worker of the batcher and its load. Removed from the batcher once it is draining and idle. */
export class AttachedWorker implements WorkerLoad {
  readonly worker: BatchWorker
  readonly capacity: EngineCapacity
  running = 0
  isDraining = false
  /** Resolves when the batcher has removed the worker. */
  readonly removed = Promise.withResolvers<void>()

  constructor(worker: BatchWorker) {
    this.worker = worker
    this.capacity = worker.capacity
  }
}

export type BatchDecision<W extends WorkerLoad> =
  | { readonly kind: 'send'; readonly to: W; readonly size: number }
  /** Decide again at `untilMs` or earlier. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  /** Decide again when a request arrives or a worker has room. */
  | { readonly kind: 'rest' }

const rest = { kind: 'rest' } as const

/** Decides the next step. The caller must call this again after it has carried out a `send`. */
export function decideBatch<W extends WorkerLoad>(
  policy: BatchPolicy,
  queue: QueueFacts,
  workers: Iterable<W>,
): BatchDecision<W> {
  if (queue.queued === 0) return rest
  const { freest, available, load } = survey(workers)
  if (freest === undefined) return rest
  if (!policy.isOn) return { kind: 'send', to: freest, size: 1 }
  const max = Math.min(policy.maxBatchSize, freeSlots(freest), queue.queued)
  if (policy.type === 'adaptive') {
    const share = Math.ceil((queue.queued + load) / available) - freest.running
    // Workers that admit requests at each step are filled evenly. A worker that admits whole
    // batches accepts no requests until its batch is done, so it gets as many as fit.
    const size = freest.capacity.admits === 'step' ? Math.min(max, Math.max(1, share)) : max
    return { kind: 'send', to: freest, size }
  }
  const untilMs = queue.oldestMs + policy.maxBatchWaitMs
  const isFull = queue.queued >= Math.min(policy.maxBatchSize, freest.capacity.slots)
  const isDue = isFull || queue.isUrgent || queue.nowMs >= untilMs
  return isDue ? { kind: 'send', to: freest, size: max } : { kind: 'wait', untilMs }
}

/** How many requests a worker can take now. */
function freeSlots({ capacity, running, isDraining }: WorkerLoad): number {
  if (isDraining || (capacity.admits === 'batch' && running > 0)) return 0
  return Math.max(0, capacity.slots - running)
}

/** The worker with the most free slots; the number and load of all workers with free slots. */
function survey<W extends WorkerLoad>(
  workers: Iterable<W>,
): { freest: W | undefined; available: number; load: number } {
  let freest: W | undefined
  let [max, available, load] = [0, 0, 0]
  for (const worker of workers) {
    const free = freeSlots(worker)
    if (free === 0) continue
    available++
    load += worker.running
    if (free <= max) continue
    max = free
    freest = worker
  }
  return { freest, available, load }
}
