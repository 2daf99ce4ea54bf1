/** The port between the local scheduler, which decides, and the executors that run jobs. */

import type { Job, Notice, TaskReport } from '../backend.ts'
import type { GpuId } from './slots.ts'

/** Jobs that begin together and share a grant of resources. */
export interface Batch {
  readonly jobs: readonly Job[]
  /** The GPUs that the jobs may see; empty for none. */
  readonly gpuIds: readonly GpuId[]
}

/**
 * Runs batches of one kind of job. Every job of a batch gets exactly one last report, or is given
 * back with `giveBack`; when that is true for all of them, or when they only wait for other tasks,
 * `finish` is called once for the batch.
 */
export interface Executor {
  /** How many batches could begin now. */
  readonly freeSlots: number
  /**
   * Slots are missing that come back with a start, which `prepare` makes. Absent where none does.
   */
  readonly canPrepare?: boolean
  /** Such a start is under way. */
  readonly isPreparing?: boolean
  /** Resources are free for so many batches of the jobs that wait: makes slots ready for them. */
  prepare?(batches: number): void
  /** How many of `waiting` jobs one batch should hold now: 1 when idle, many under backlog. */
  batchSize(waiting: number): number
  assign(batch: Batch): void
  /**
   * Ends a job of this executor's, begun or not; it is reported as canceled unless it ended first.
   */
  cancel(job: Job, reason: string): void
  /** Cancels everything and waits until nothing of it is left. Idempotent. */
  close(reason: string): Promise<void>
}

/** How an executor reports back. Nothing here throws. */
export interface ExecutorListener {
  report(job: Job, report: TaskReport): void
  /** Of one job: only its session gets it; else all do. */
  notice(notice: Notice, job?: Job): void
  /** The job had a result after its last report, as an abandoned closure may. */
  resultDropped(job: Job): void
  /**
   * The job never began (its worker died, or another is idle): it goes back to the head of its
   * queue.
   */
  giveBack(jobs: readonly Job[]): void
  /** The batch is over and its resources are free. */
  finish(batch: Batch): void
}
