/** Starts one worker when there is work for it, and another one when it was lost. */

import type { BackendError } from '../../../foundation/errors.ts'
import type { Job } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import { Assignment } from './assignments.ts'
import { PooledWorker, type PooledWorkerOptions, type WorkerEnd } from './pooled-worker.ts'
import type { BackOff } from '../../../runtime/back-off.ts'

/** Shared by the handles of a pool. */
export interface WorkerHandleOptions extends PooledWorkerOptions {
  readonly startFailures: BackOff
  newWorkerId(): string
  /** Called when too many workers in a row did not start. */
  giveUp(): void
}

const closeDeadlineMs = 10_000

export class WorkerHandle {
  readonly #options: WorkerHandleOptions
  /** Batches that no worker has yet. */
  #waiting: Assignment[] = []
  #worker: PooledWorker | null = null
  #cancelDelay: (() => void) | null = null
  #closing: PromiseWithResolvers<void> | null = null

  constructor(options: WorkerHandleOptions) {
    this.#options = options
  }

  /** Whether a batch that is assigned now would be the only one. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && (this.#worker === null || this.#worker.isDone)
  }

  /** Its worker has passed all jobs. */
  get isAtRest(): boolean {
    return this.isIdle && this.#worker?.isEmpty !== false
  }

  /** There is a worker that could begin a job now. */
  get isWarm(): boolean {
    return this.#worker !== null && !this.#worker.isEnding
  }

  /** Whether a batch can be assigned. Short ones are prefetched, so that the worker never waits. */
  get hasPlace(): boolean {
    return this.isIdle || (this.isWarm && this.#worker?.hasPrefetchPlace === true)
  }

  assign(batch: Batch): void {
    const assignment = new Assignment(batch, this.#options.listener)
    this.#waiting.push(assignment)
    if (this.#worker === null) this.#start()
    else this.#feed(this.#worker)
  }

  /** `false` when the job is not here. */
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
    if (this.#worker?.hasBegun === true) this.#options.startFailures.reset()
  }

  /** Fails the waiting batches, because no worker can be started. */
  fail(error: BackendError): void {
    this.#stopDelay()
    for (const assignment of this.#waiting.splice(0)) {
      assignment.endAll(() => ({ kind: 'fail', error }))
    }
  }

  /** Resolves when the worker has exited. */
  close(reason: string): Promise<void> {
    if (this.#closing !== null) return this.#closing.promise
    this.#closing = Promise.withResolvers<void>()
    const { promise, resolve } = this.#closing
    this.#stopDelay()
    for (const assignment of this.#waiting.splice(0)) {
      assignment.endAll(() => ({ kind: 'cancel', reason }))
    }
    const worker = this.#worker
    if (worker === null) {
      resolve()
      return promise
    }
    // A thread in native code cannot be ended from outside; it is left behind.
    const stopDeadline = this.#options.clock.after(closeDeadlineMs, () => worker.exit({}))
    worker.close(reason)
    return promise.finally(stopDeadline)
  }

  #start(): void {
    if (this.#cancelDelay !== null || this.#waiting.length === 0) return
    const { clock, startFailures } = this.#options
    const delayMs = startFailures.delayMs(clock.monotonicMs())
    if (delayMs > 0) {
      this.#cancelDelay = clock.after(delayMs, () => {
        this.#cancelDelay = null
        this.#start()
      })
      return
    }
    try {
      const id = this.#options.newWorkerId()
      this.#worker = new PooledWorker(id, this.#options, {
        end: (end) => this.#onEnd(end),
        advance: () => this.#worker !== null && this.#feed(this.#worker),
      })
    } catch (error) {
      this.#failStart(error)
      return
    }
    this.#feed(this.#worker)
  }

  /** Batches that were canceled as a whole count until the worker has passed them. */
  #feed(worker: PooledWorker): void {
    while (!worker.isEnding && !worker.isFull) {
      const assignment = this.#waiting.shift()
      if (assignment === undefined) return
      worker.take(assignment)
    }
  }

  #onEnd({ hasFailedToStart, assignments, loss }: WorkerEnd): void {
    this.#worker = null
    if (this.#closing !== null) return this.#closing.resolve()
    this.#waiting.unshift(...assignments.filter((one) => !one.isDone))
    if (hasFailedToStart) this.#failStart(loss.cause ?? new Error(loss.reason))
    else this.#start()
  }

  #failStart(error: unknown): void {
    const { clock, startFailures } = this.#options
    startFailures.fail(clock.monotonicMs(), error)
    if (startFailures.hasGivenUp(clock.monotonicMs())) this.#options.giveUp()
    else this.#start()
  }

  #stopDelay(): void {
    this.#cancelDelay?.()
    this.#cancelDelay = null
  }
}
