/** The interface between the local scheduler and the executors that run its jobs. */

import type { Job, Notice, TaskReport } from '../backend.ts'
import type { GpuId } from './slots.ts'

export interface Batch {
  readonly jobs: readonly Job[]
  readonly gpuIds: readonly GpuId[]
}

/**
 * Runs batches of one kind of job. Every job either gets exactly one last report or is returned by
 * `requeue`. The executor calls `finish` once per batch: when all its jobs have ended or were
 * returned, or when the remaining jobs only wait for other tasks.
 */
export interface Executor {
  readonly freeSlots: number
  /** Whether `prepare` can start workers for more slots. Absent if there is no `prepare`. */
  readonly canPrepare?: boolean
  readonly isPreparing?: boolean
  /** Starts workers for `batches`: the number of waiting batches that fit into free resources. */
  prepare?(batches: number): void
  /** How many of the `waiting` jobs to put into one batch: 1 when idle, many under backlog. */
  batchSize(waiting: number): number
  assign(batch: Batch): void
  /** Cancels a job, whether it has started or not. Reports it as canceled unless it has ended. */
  cancel(job: Job, reason: string): void
  /** Cancels all jobs and resolves when they have ended. Idempotent. */
  close(reason: string): Promise<void>
}

/** How an executor reports to the scheduler. No method throws. */
export interface ExecutorListener {
  report(job: Job, report: TaskReport): void
  /** Passes the notice to the session of `job`, or to all sessions if `job` is absent. */
  notice(notice: Notice, job?: Job): void
  /** Called when a job, such as an abandoned closure, returns after the job's last report. */
  resultDropped(job: Job): void
  /**
   * Puts jobs that have not begun back at their former positions in the queue. Executors call this
   * if the worker of these jobs has ended, or if another worker is idle. With an empty list, it
   * only assigns waiting jobs.
   */
  requeue(jobs: readonly Job[]): void
  finish(batch: Batch): void
}
