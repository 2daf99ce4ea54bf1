/** Runs functions from `defineTask` on threads or processes that it keeps. One attempt a job. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import type { Job } from '../../backend.ts'
import type { Batch, Executor, ExecutorListener } from '../executor.ts'
import { chooseBatchSize, JobDurations } from './batch-size.ts'
import { bankSize } from './mailbox.ts'
import { ProcessLink } from './process-link.ts'
import { WorkerHandle, type WorkerHandleOptions } from './worker-handle.ts'
import { BackOff } from '../../../runtime/back-off.ts'
import { siblingProgram } from '../../../runtime/supervised-child.ts'
import { ThreadLink } from './thread-link.ts'

export interface WorkerPoolOptions {
  /** The most workers; they start when there is work for them. */
  readonly size: number
  /** Threads are cheaper; processes also survive crashes of foreign code. */
  readonly isolation: 'thread' | 'process'
  readonly nodeId: string
  /** Of the worker ids, which are `<idPrefix>/w1` and so on. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  /** Megabytes of heap after which a worker is ended. Default: Node's own limit. */
  readonly maxHeapMb?: number
  /** What the workers run. Default: this folder's `worker-program`. */
  readonly program?: URL
}

/** How often starts, time-outs and stuck batches are checked while there is work. */
const pollMs = 20
const workerProgram = siblingProgram(import.meta.url, 'worker-program')
/** For workers that end before they have begun a job. */
const startBackOff = { firstDelayMs: 1000, maxDelayMs: 30_000, giveUpAfter: 5 }

export class WorkerPool implements Executor {
  readonly #options: WorkerPoolOptions
  readonly #handles: readonly WorkerHandle[]
  readonly #durations = new JobDurations()
  readonly #startFailures = new BackOff(startBackOff)
  #stopPolling: (() => void) | null = null
  #workers = 0
  #closeReason: string | null = null
  #closing: Promise<void> | null = null

  constructor(options: WorkerPoolOptions) {
    this.#options = options
    const {
      nodeId,
      idPrefix,
      clock,
      listener,
      isolation,
      maxHeapMb = null,
      program = workerProgram,
    } = options
    const Link = isolation === 'thread' ? ThreadLink : ProcessLink
    const handleOptions: WorkerHandleOptions = {
      clock,
      listener,
      nodeId,
      durations: this.#durations,
      startFailures: this.#startFailures,
      newWorkerId: () => `${idPrefix}/w${++this.#workers}`,
      connect: (workerId, link) =>
        new Link({ workerId, program, maxHeapMb, clock, listener: link }),
      giveUp: () => this.#giveUp(),
    }
    this.#handles = Array.from({ length: options.size }, () => new WorkerHandle(handleOptions))
  }

  get freeSlots(): number {
    if (this.#closeReason !== null) return 0
    let free = 0
    for (const handle of this.#handles) if (this.#hasRoom(handle)) free++
    return free
  }

  batchSize(waiting: number): number {
    if (this.#options.isolation === 'process') return 1
    return chooseBatchSize(waiting, this.#handles.length, this.#durations.meanMs)
  }

  assign(batch: Batch): void {
    const { clock, listener } = this.#options
    if (batch.jobs.length > bankSize) throw new RangeError(`a batch has at most ${bankSize} jobs`)
    if (this.#closeReason !== null) {
      const reason = this.#closeReason
      for (const job of batch.jobs) listener.report(job, { kind: 'cancel', reason })
      return listener.finish(batch)
    }
    if (this.#startFailures.hasGivenUp(clock.monotonicMs())) {
      const error = this.#hopelessError()
      for (const job of batch.jobs) listener.report(job, { kind: 'fail', error })
      return listener.finish(batch)
    }
    const handle = this.#chooseHandle()
    if (handle === undefined) {
      listener.giveBack(batch.jobs)
      return listener.finish(batch)
    }
    handle.assign(batch)
    this.#stopPolling ??= clock.after(pollMs, () => this.#poll(), { background: true })
  }

  cancel(job: Job, reason: string): void {
    this.#handles.some((handle) => handle.cancel(job, reason))
  }

  close(reason: string): Promise<void> {
    this.#closing ??= this.#closeOnce(reason)
    return this.#closing
  }

  async #closeOnce(reason: string): Promise<void> {
    this.#closeReason = reason
    await Promise.all(this.#handles.map((handle) => handle.close(reason)))
    this.#stopPolling?.()
    this.#stopPolling = null
  }

  /** Processes take one job at a time: what was sent there cannot be taken back. */
  #hasRoom(handle: WorkerHandle): boolean {
    return this.#options.isolation === 'process' ? handle.isIdle : handle.hasPlace
  }

  /** An idle worker, else a new one, else one whose batch will not take long. */
  #chooseHandle(): WorkerHandle | undefined {
    const idle = this.#handles.filter((handle) => handle.isIdle)
    return (
      idle.find((handle) => handle.isWarm) ??
      idle[0] ??
      this.#handles.find((handle) => this.#hasRoom(handle))
    )
  }

  #poll(): void {
    this.#stopPolling = null
    for (const handle of this.#handles) handle.poll()
    if (this.#handles.every((handle) => handle.isAtRest)) return
    const { clock } = this.#options
    this.#stopPolling ??= clock.after(pollMs, () => this.#poll(), { background: true })
  }

  #giveUp(): void {
    const error = this.#hopelessError()
    this.#options.log.warn('WorkersDoNotStart', error.message)
    for (const handle of this.#handles) handle.fail(error)
  }

  #hopelessError(): BackendError {
    const { failures, lastError } = this.#startFailures
    return new BackendError(
      `${failures} workers in a row did not start; the last: ${messageOf(lastError)}`,
      { code: 'WorkersDoNotStartError', cause: lastError },
    )
  }
}
