/** Decides which worker gets how many of the queued requests, and when. Pure. */

import type { EngineCapacity, GenerationListener, GenerationRequest } from './inference-engine.ts'

export interface BatchPolicy {
  /** `adaptive` sends when a worker has room, `fixed` when the batch is full or has waited. */
  readonly type: 'adaptive' | 'fixed'
  readonly maxBatchSize: number
  readonly maxBatchWaitMs: number
  /** If `false`, every request is sent alone as soon as a worker is free. */
  readonly isOn: boolean
}

export interface QueueState {
  readonly queued: number
  readonly oldestArrivalMs: number
  readonly nowMs: number
  /** Whether to send a partial batch, because of a retry or because no more requests arrive. */
  readonly isUrgent: boolean
  /** Whether to keep one slot free, where possible, for a client that has no other request. */
  readonly keepsSlot: boolean
}

/**
 * The minimum number of slots of which one may be kept free. With fewer, this would cost too much.
 */
const minSlotsToKeepOne = 8

export interface WorkerLoad {
  readonly capacity: EngineCapacity
  readonly running: number
  readonly isDraining: boolean
}

export interface BatchWorker {
  readonly workerId: string
  /** The node that runs the model. Absent if the model runs on this machine. */
  readonly nodeId?: string | undefined
  readonly capacity: EngineCapacity
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** Called when the worker still has a request long after that request was aborted. */
  markLost?(reason: string): void
}

export class AttachedWorker implements WorkerLoad {
  readonly worker: BatchWorker
  readonly capacity: EngineCapacity
  running = 0
  isDraining = false
  readonly removed = Promise.withResolvers<void>()

  constructor(worker: BatchWorker) {
    this.worker = worker
    this.capacity = worker.capacity
  }
}

export type BatchDecision<W extends WorkerLoad> =
  | { readonly kind: 'send'; readonly worker: W; readonly size: number }
  /** Nothing can be sent yet. The caller must decide again at `untilMs` or earlier. */
  | { readonly kind: 'wait'; readonly untilMs: number }
  /** The caller must decide again when a request arrives or a worker has room. */
  | { readonly kind: 'idle' }

const idle = { kind: 'idle' } as const

/** Decides the next step. The caller must call this again after it has carried out a `send`. */
export function decideBatch<W extends WorkerLoad>(
  policy: BatchPolicy,
  queue: QueueState,
  workers: Iterable<W>,
): BatchDecision<W> {
  if (queue.queued === 0) return idle
  const { roomiest, available, load, free, slots } = findRoomiestWorker(workers)
  if (roomiest === undefined) return idle
  // A worker that admits whole batches could not use the free slot during its batch.
  const mayKeep = policy.type === 'adaptive' && roomiest.capacity.admits === 'step'
  const kept = queue.keepsSlot && mayKeep && slots >= minSlotsToKeepOne ? 1 : 0
  if (free <= kept) return idle
  if (!policy.isOn) return { kind: 'send', worker: roomiest, size: 1 }
  const max = Math.min(policy.maxBatchSize, freeSlots(roomiest), queue.queued, free - kept)
  if (policy.type === 'adaptive') {
    const share = Math.ceil((queue.queued + load) / available) - roomiest.running
    // A worker that admits whole batches accepts nothing until its batch is done: fill the batch.
    const size = roomiest.capacity.admits === 'step' ? Math.min(max, Math.max(1, share)) : max
    return { kind: 'send', worker: roomiest, size }
  }
  const untilMs = queue.oldestArrivalMs + policy.maxBatchWaitMs
  const isFull = queue.queued >= Math.min(policy.maxBatchSize, roomiest.capacity.slots)
  const isDue = isFull || queue.isUrgent || queue.nowMs >= untilMs
  return isDue ? { kind: 'send', worker: roomiest, size: max } : { kind: 'wait', untilMs }
}

function freeSlots({ capacity, running, isDraining }: WorkerLoad): number {
  if (isDraining || (capacity.admits === 'batch' && running > 0)) return 0
  return Math.max(0, capacity.slots - running)
}

interface Rooms<W> {
  readonly roomiest: W | undefined
  /** The number of workers with a free slot, and the number of their requests. */
  readonly available: number
  readonly load: number
  /** The free slots, and all slots, of all workers. */
  readonly free: number
  readonly slots: number
}

function findRoomiestWorker<W extends WorkerLoad>(workers: Iterable<W>): Rooms<W> {
  let roomiest: W | undefined
  let [max, available, load, allFree, slots] = [0, 0, 0, 0, 0]
  for (const worker of workers) {
    const free = freeSlots(worker)
    if (!worker.isDraining) slots += worker.capacity.slots
    if (free === 0) continue
    available++
    allFree += free
    load += worker.running
    if (free <= max) continue
    max = free
    roomiest = worker
  }
  return { roomiest, available, load, free: allFree, slots }
}
