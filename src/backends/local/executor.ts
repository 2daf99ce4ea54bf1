/** The port between the local scheduler and the executors, which run the jobs it assigns. */

import type { Job, Notice, TaskReport } from '../backend.ts'
import type { GpuId } from './slots.ts'

/** Jobs that begin together and share one grant of resources. */
export interface Batch {
  readonly jobs: readonly Job[]
  /** The GPUs that the jobs may use; empty for none. */
  readonly gpuIds: readonly GpuId[]
}

/**
 * Runs batches of one kind of job. Every job of a batch gets exactly one last report, or is
 * returned by `giveBack`. Once this holds for all jobs of a batch, or the remaining ones only wait
 * for other tasks, the executor calls `finish` once for the batch.
 */
export interface Executor {
  /** How many batches could begin now. */
  readonly freeSlots: number
  /** Whether `prepare` can start workers for more slots. Absent if `prepare` is absent. */
  readonly canPrepare?: boolean
  /** Whether jobs wait for a worker that is being started. */
  readonly isPreparing?: boolean
  /** Makes slots ready for this many batches of waiting jobs, for which resources are free. */
  prepare?(batches: number): void
  /** How many of the `waiting` jobs one batch should hold: 1 when idle, many under backlog. */
  batchSize(waiting: number): number
  assign(batch: Batch): void
  /** Cancels a job, started or not. It is reported as canceled unless it has already ended. */
  cancel(job: Job, reason: string): void
  /** Cancels all jobs and resolves when they have ended. Idempotent. */
  close(reason: string): Promise<void>
}

/** How an executor reports to the scheduler. No method throws. */
export interface ExecutorListener {
  report(job: Job, report: TaskReport): void
  /** With `job`, only the job's session gets the notice; without it, all sessions do. */
  notice(notice: Notice, job?: Job): void
  /** The job returned a result after its last report, as an abandoned closure may. */
  resultDropped(job: Job): void
  /**
   * Returns jobs that never began to the head of their queue, because their worker ended or another
   * worker is idle.
   */
  giveBack(jobs: readonly Job[]): void
  /** The batch has ended, so its resources are free. */
  finish(batch: Batch): void
}
