/** Manages one worker of the pool: starts it when there is work, and replaces it when lost. */

import { once } from '../../../foundation/service.ts'
import type { Job } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import { Assignment } from './assignments.ts'
import { PooledWorker, type PooledWorkerOptions, type WorkerEnd } from './pooled-worker.ts'
import type { Restarts } from '../../../runtime/retry.ts'

/** Options that all handles of a pool share. */
export interface WorkerHandleOptions extends PooledWorkerOptions {
  readonly starts: Restarts
  /**
   * Whether a worker that has used GPUs must be replaced before it gets different GPUs, because
   * native libraries keep the GPUs that they have opened. Only for processes: a thread cannot
   * change what those libraries see.
   */
  readonly keepsGpus: boolean
  newWorkerId(): string
  /** A worker ended before it had begun a job. */
  failStart(round: number, error: unknown): void
  /** A worker has begun its first job. */
  succeedStart(): void
  /** The replacement of a worker is ready. */
  onRoom(): void
  /** A worker has ended; its waiting batches went to another worker or were given back. */
  onEnd(): void
}

export class WorkerHandle {
  readonly #options: WorkerHandleOptions
  /** Batches that no worker has yet. */
  #waiting: Assignment[] = []
  #worker: PooledWorker | null = null
  /** The GPUs that the worker was assigned, joined by commas; empty for none. */
  #gpus = ''
  /** The round of the worker's start, for `Restarts`. */
  #round = 0
  #hasHadWorker = false
  readonly #closed = Promise.withResolvers<void>()

  constructor(options: WorkerHandleOptions) {
    this.#options = options
  }

  /** Whether a batch assigned now would be the only batch of this handle. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && (this.#worker === null || this.#worker.isDone)
  }

  /** Whether the worker has passed all slots, and no replacement is being started. */
  get isAtRest(): boolean {
    return this.isIdle && this.#worker?.isEmpty !== false && !this.isReplacing
  }

  /** Whether its worker has ended and no replacement was started. */
  get isReplaceable(): boolean {
    return this.#hasHadWorker && this.#worker === null && this.#waiting.length === 0
  }

  /** Whether the replacement of an ended worker is not ready yet. */
  get isReplacing(): boolean {
    return this.#hasHadWorker && this.#worker?.isReady === false
  }

  /** Whether it has a worker that accepts jobs. */
  get isWarm(): boolean {
    return this.#worker !== null && !this.#worker.isEnding
  }

  /** Whether it has never had a worker. */
  get isNew(): boolean {
    return !this.#hasHadWorker && this.#worker === null
  }

  /** Whether a batch can be assigned. Short jobs are prefetched, so that the worker never idles. */
  get canAccept(): boolean {
    return this.isIdle || (this.isWarm && this.#worker?.hasPrefetchPlace === true)
  }

  /** Whether its worker can use the batch's GPUs. */
  canShow({ gpuIds }: Batch): boolean {
    if (!this.#options.keepsGpus || gpuIds.length === 0) return true
    return this.#worker === null || this.#gpus === '' || this.#gpus === gpuIds.join()
  }

  assign(batch: Batch): void {
    if (!this.canShow(batch)) this.#worker?.close('the next function has other GPUs')
    const assignment = new Assignment(batch, this.#options.listener)
    this.#waiting.push(assignment)
    if (this.#worker === null) this.#start()
    else this.#feed(this.#worker)
  }

  /** Starts a replacement of the ended worker, without assigning a batch. */
  replace(): void {
    this.#start()
  }

  /** Returns `false` if this handle does not have the job. */
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

  /** Resolves when the worker has exited or was left behind. */
  readonly close = once(async (reason: string): Promise<void> => {
    for (const assignment of this.#waiting.splice(0)) {
      assignment.endAll(() => ({ kind: 'cancel', reason }))
    }
    this.#worker?.close(reason)
    if (this.#worker !== null) await this.#closed.promise
  })

  #start(): void {
    const { clock, starts } = this.#options
    if (!starts.mayStart(() => clock.monotonicMs())) return this.#giveBack()
    this.#round = starts.begin(clock.monotonicMs())
    this.#gpus = ''
    try {
      const id = this.#options.newWorkerId()
      this.#worker = new PooledWorker(id, this.#options, {
        ready: () => this.#hasHadWorker && this.#options.onRoom(),
        begin: () => this.#options.succeedStart(),
        end: (end) => this.#onEnd(end),
        advance: () => this.#worker !== null && this.#feed(this.#worker),
      })
    } catch (error) {
      this.#options.failStart(this.#round, error)
      return this.#giveBack()
    }
    this.#feed(this.#worker)
  }

  /**
   * Returns the waiting batches to the scheduler: they then hold no resources, and workers of other
   * handles may take them.
   */
  #giveBack(): void {
    for (const assignment of this.#waiting.splice(0)) {
      const jobs = assignment.takeAll()
      if (jobs.length > 0) this.#options.listener.giveBack(jobs)
      assignment.finish()
    }
  }

  /** A batch that was canceled as a whole occupies its bank until the worker has passed it. */
  #feed(worker: PooledWorker): void {
    while (!worker.isEnding && !worker.isFull) {
      const assignment = this.#waiting.shift()
      if (assignment === undefined) return
      const { gpuIds } = assignment.batch
      if (gpuIds.length > 0) this.#gpus = gpuIds.join()
      worker.take(assignment)
    }
  }

  #onEnd({ hasFailedToStart, assignments, loss }: WorkerEnd): void {
    this.#worker = null
    this.#hasHadWorker = true
    if (this.close.isCalled) return this.#closed.resolve()
    this.#waiting.unshift(...assignments.filter((one) => !one.isDone))
    for (const assignment of assignments) assignment.finish()
    if (hasFailedToStart) {
      this.#options.failStart(this.#round, loss.cause ?? new Error(loss.reason))
    }
    if (this.#waiting.length > 0) this.#start()
    this.#options.onEnd()
  }
}
