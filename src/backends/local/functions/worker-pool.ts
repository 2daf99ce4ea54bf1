/** Runs functions from `defineTask` on threads or processes that it keeps. One attempt a job. */

import { hostname } from 'node:os'
import type { Clock } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import type { Job } from '../../backend.ts'
import type { Batch, Executor, ExecutorListener } from '../executor.ts'
import { chooseBatchSize, JobDurations } from './batch-size.ts'
import { bankSize } from './mailbox.ts'
import { ProcessLink } from './process-link.ts'
import { Seat, type SeatOptions } from './seat.ts'
import { BackOff } from '../../../runtime/back-off.ts'
import { ThreadLink } from './thread-link.ts'
import { workerProgram } from './worker-link.ts'

export interface WorkerPoolOptions {
  /** The most workers; they start when there is work for them. */
  readonly size: number
  /** Threads are cheaper; processes also survive crashes of foreign code. */
  readonly isolation: 'thread' | 'process'
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  /** Megabytes of heap after which a worker is ended. Default: Node's own limit. */
  readonly maxHeapMb?: number
  /** What the workers run. Default: this folder's `worker-program`. */
  readonly program?: URL
}

/** How often starts, time-outs and stuck batches are looked after, while there is work. */
const pollMs = 20
/** For workers that end before they have begun a job. */
const startBackOff = { firstDelayMs: 1000, maxDelayMs: 30_000, giveUpAfter: 5 }

export class WorkerPool implements Executor {
  readonly #options: WorkerPoolOptions
  readonly #seats: readonly Seat[]
  readonly #durations = new JobDurations()
  readonly #startFailures = new BackOff(startBackOff)
  #stopPolling: (() => void) | null = null
  #workers = 0
  #closeReason: string | null = null
  #closing: Promise<void> | null = null

  constructor(options: WorkerPoolOptions) {
    this.#options = options
    const { clock, listener, isolation, maxHeapMb = null, program = workerProgram } = options
    const Link = isolation === 'thread' ? ThreadLink : ProcessLink
    const seatOptions: SeatOptions = {
      clock,
      listener,
      nodeId: hostname(),
      durations: this.#durations,
      startFailures: this.#startFailures,
      newWorkerId: () => `w${++this.#workers}`,
      connect: (workerId, link) =>
        new Link({ workerId, program, maxHeapMb, clock, listener: link }),
      giveUp: () => this.#giveUp(),
    }
    this.#seats = Array.from({ length: options.size }, () => new Seat(seatOptions))
  }

  get freeSlots(): number {
    if (this.#closeReason !== null) return 0
    let free = 0
    for (const seat of this.#seats) if (this.#hasPlace(seat)) free++
    return free
  }

  batchSize(waiting: number): number {
    if (this.#options.isolation === 'process') return 1
    return chooseBatchSize(waiting, this.#seats.length, this.#durations.meanMs)
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
    const seat = this.#chooseSeat()
    if (seat === undefined) {
      listener.giveBack(batch.jobs)
      return listener.finish(batch)
    }
    seat.assign(batch)
    this.#stopPolling ??= clock.after(pollMs, () => this.#poll(), { background: true })
  }

  cancel(job: Job, reason: string): void {
    this.#seats.some((seat) => seat.cancel(job, reason))
  }

  close(reason: string): Promise<void> {
    this.#closing ??= this.#closeOnce(reason)
    return this.#closing
  }

  async #closeOnce(reason: string): Promise<void> {
    this.#closeReason = reason
    await Promise.all(this.#seats.map((seat) => seat.close(reason)))
    this.#stopPolling?.()
    this.#stopPolling = null
  }

  /** Processes take one job at a time: what was sent there cannot be taken back. */
  #hasPlace(seat: Seat): boolean {
    return this.#options.isolation === 'process' ? seat.isIdle : seat.hasPlace
  }

  /** An idle worker, else a new one, else the place behind a batch that will not take long. */
  #chooseSeat(): Seat | undefined {
    const idle = this.#seats.filter((seat) => seat.isIdle)
    return (
      idle.find((seat) => seat.isWarm) ??
      idle[0] ??
      this.#seats.find((seat) => this.#hasPlace(seat))
    )
  }

  #poll(): void {
    this.#stopPolling = null
    for (const seat of this.#seats) seat.poll()
    if (this.#seats.every((seat) => seat.isAtRest)) return
    const { clock } = this.#options
    this.#stopPolling ??= clock.after(pollMs, () => this.#poll(), { background: true })
  }

  #giveUp(): void {
    const error = this.#hopelessError()
    this.#options.log.warn('WorkersDoNotStart', error.message)
    for (const seat of this.#seats) seat.fail(error)
  }

  #hopelessError(): BackendError {
    const { failures, lastError } = this.#startFailures
    return new BackendError(
      `${failures} workers in a row did not start; the last: ${messageOf(lastError)}`,
      { code: 'WorkersDoNotStartError', cause: lastError },
    )
  }
}
