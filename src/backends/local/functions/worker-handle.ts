/** Manages one worker of the pool: starts it when there is work, and replaces it if it is lost. */

import { once } from '../../../foundation/service.ts'
import type { Job } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import { Assignment } from './assignments.ts'
import { PooledWorker, type PooledWorkerOptions, type WorkerOutcome } from './pooled-worker.ts'
import type { Restarts } from '../../../runtime/retry.ts'

/** Options that all handles of a pool share. */
export interface WorkerHandleOptions extends PooledWorkerOptions {
  readonly starts: Restarts
  /**
   * Whether a worker must be replaced before it can use other GPUs, because native libraries keep
   * the GPUs that they have opened. `false` for threads: their libraries belong to the process.
   */
  readonly keepsGpus: boolean
  newWorkerId(): string
  onStartFailed(round: number, error: unknown): void
  onStarted(): void
  onReplacementReady(): void
  /** Called when a worker has ended and its waiting batches were reassigned or requeued. */
  onEnd(): void
}

export class WorkerHandle {
  readonly #options: WorkerHandleOptions
  #waiting: Assignment[] = []
  #worker: PooledWorker | null = null
  /** The GPUs assigned to the worker, joined by commas. */
  #gpus = ''
  #round = 0
  #hasHadWorker = false
  readonly #closed = Promise.withResolvers<void>()

  constructor(options: WorkerHandleOptions) {
    this.#options = options
  }

  /** Whether the outcomes of all jobs are reported, so that a new batch would be the only batch. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && (this.#worker === null || this.#worker.isDone)
  }

  get isAtRest(): boolean {
    return this.isIdle && this.#worker?.isEmpty !== false && !this.isReplacing
  }

  get isReplaceable(): boolean {
    return this.#hasHadWorker && this.#worker === null && this.#waiting.length === 0
  }

  get isReplacing(): boolean {
    return this.#hasHadWorker && this.#worker?.isReady === false
  }

  get isWarm(): boolean {
    return this.#worker !== null && !this.#worker.isEnding
  }

  get isNew(): boolean {
    return !this.#hasHadWorker && this.#worker === null
  }

  /** Whether a batch can be assigned. If jobs are short, this may be a second batch. */
  get canAccept(): boolean {
    return this.isIdle || (this.isWarm && this.#worker?.canPrefetch === true)
  }

  canUseGpus({ gpuIds }: Batch): boolean {
    if (!this.#options.keepsGpus || gpuIds.length === 0) return true
    return this.#worker === null || this.#gpus === '' || this.#gpus === gpuIds.join()
  }

  assign(batch: Batch): void {
    if (!this.canUseGpus(batch)) this.#worker?.close('the next function has other GPUs')
    const assignment = new Assignment(batch, this.#options.listener)
    this.#waiting.push(assignment)
    if (this.#worker === null) this.start()
    else this.#assignWaiting(this.#worker)
  }

  cancel(job: Job, reason: string): boolean {
    for (const assignment of this.#waiting) {
      const index = assignment.indexOf(job)
      if (index === -1) continue
      assignment.end(index, { kind: 'cancel', reason })
      this.#waiting = this.#waiting.filter((one) => !one.isDone)
      assignment.finish()
      return true
    }
    return this.#worker?.cancel(job, reason) ?? false
  }

  poll(): void {
    this.#worker?.poll()
  }

  /** Resolves when the worker has exited or was abandoned. */
  readonly close = once(async (reason: string): Promise<void> => {
    for (const assignment of this.#waiting.splice(0)) {
      assignment.endAll(() => ({ kind: 'cancel', reason }))
    }
    this.#worker?.close(reason)
    if (this.#worker !== null) await this.#closed.promise
  })

  /** Starts a worker, even without a batch, and assigns the waiting batches. */
  start(): void {
    const { clock, starts } = this.#options
    if (!starts.canStart(() => clock.monotonicMs())) return this.#requeueWaiting()
    this.#round = starts.begin(clock.monotonicMs())
    this.#gpus = ''
    try {
      const id = this.#options.newWorkerId()
      this.#worker = new PooledWorker(id, this.#options, {
        onReady: () => this.#hasHadWorker && this.#options.onReplacementReady(),
        onBegin: () => this.#options.onStarted(),
        onEnd: (end) => this.#onEnd(end),
        onAdvance: () => this.#worker !== null && this.#assignWaiting(this.#worker),
      })
    } catch (error) {
      this.#options.onStartFailed(this.#round, error)
      return this.#requeueWaiting()
    }
    this.#assignWaiting(this.#worker)
  }

  /**
   * Requeues the waiting batches, so that they hold no resources and other workers can take them.
   */
  #requeueWaiting(): void {
    for (const assignment of this.#waiting.splice(0)) {
      const jobs = assignment.withdrawAll()
      if (jobs.length > 0) this.#options.listener.requeue(jobs)
      assignment.finish()
    }
  }

  /**
   * Assigns waiting batches while the worker has room. A canceled batch occupies its bank until the
   * worker has finished it.
   */
  #assignWaiting(worker: PooledWorker): void {
    while (!worker.isEnding && !worker.isFull) {
      const assignment = this.#waiting.shift()
      if (assignment === undefined) return
      const { gpuIds } = assignment.batch
      if (gpuIds.length > 0) this.#gpus = gpuIds.join()
      worker.assign(assignment)
    }
  }

  #onEnd({ hasFailedToStart, assignments, loss }: WorkerOutcome): void {
    this.#worker = null
    this.#hasHadWorker = true
    if (this.close.isCalled) return this.#closed.resolve()
    this.#waiting.unshift(...assignments.filter((one) => !one.isDone))
    for (const assignment of assignments) assignment.finish()
    if (hasFailedToStart) {
      this.#options.onStartFailed(this.#round, loss.cause ?? new Error(loss.reason))
    }
    if (this.#waiting.length > 0) this.start()
    this.#options.onEnd()
  }
}
