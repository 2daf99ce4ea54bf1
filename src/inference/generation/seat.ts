/** A worker's place at the batcher: who it is, and how much it has. */

import type { WorkerLoad } from './batch-policy.ts'
import type { EngineCapacity, GenerationListener, GenerationRequest } from './inference-engine.ts'

/** One who generates, as the batcher sees it. */
export interface BatchWorker {
  readonly workerId: string
  readonly capacity: EngineCapacity
  /** As `InferenceEngine.generate`. */
  generate(requests: readonly GenerationRequest[], listener: GenerationListener): Promise<void>
  /** Told when it still has a request long after it was asked to let go of it. */
  giveUp?(reason: string): void
}

/** Leaves when it is told to and has nothing. */
export class Seat implements WorkerLoad {
  readonly worker: BatchWorker
  readonly capacity: EngineCapacity
  running = 0
  isLeaving = false
  /** Resolved when it has left. */
  readonly left = Promise.withResolvers<void>()

  constructor(worker: BatchWorker) {
    this.worker = worker
    this.capacity = worker.capacity
  }
}
