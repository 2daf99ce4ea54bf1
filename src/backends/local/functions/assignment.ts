/** A batch on its way through a pool: answers for each of its jobs exactly once, whatever races. */

import type { Job, TaskReport } from '../../backend.ts'
import type { Batch, ExecutorListener } from '../executor.ts'
import { bankSize } from './mailbox.ts'

const started = 1
const over = 2

export class Assignment {
  readonly batch: Batch
  /** Where the jobs lie in the worker's mailbox. */
  bank = 0
  /** Jobs before this index have been read from the mailbox. */
  read = 0
  readonly #listener: ExecutorListener
  readonly #flags: Uint8Array
  #left: number
  #isFinished = false

  constructor(batch: Batch, listener: ExecutorListener) {
    this.batch = batch
    this.#listener = listener
    this.#left = batch.jobs.length
    this.#flags = new Uint8Array(this.#left)
  }

  get count(): number {
    return this.batch.jobs.length
  }

  slotOf(index: number): number {
    return this.bank * bankSize + index
  }

  jobAt(index: number): Job {
    const job = this.batch.jobs[index]
    if (job === undefined) throw new RangeError(`there is no job ${index} in the batch`)
    return job
  }

  /** The index of a job that is not over, or -1. */
  indexOf(job: Job): number {
    const index = this.batch.jobs.indexOf(job)
    return index !== -1 && this.isOver(index) ? -1 : index
  }

  isOver(index: number): boolean {
    return ((this.#flags[index] ?? over) & over) !== 0
  }

  /** Every job is answered for. */
  get isDone(): boolean {
    return this.#left === 0
  }

  /** Reports the start, unless it was. */
  start(index: number, report: () => Extract<TaskReport, { kind: 'start' }>): void {
    const flags = this.#flags[index] ?? over
    if (flags !== 0) return
    this.#flags[index] = started
    this.#listener.report(this.jobAt(index), report())
  }

  /** Reports the end, unless the job is over. */
  end(index: number, report: TaskReport): void {
    if (this.#close(index)) this.#listener.report(this.jobAt(index), report)
  }

  /** Ends all jobs that are not over. */
  endAll(toReport: (job: Job) => TaskReport): void {
    for (let index = 0; index < this.count; index++) {
      if (!this.isOver(index)) this.end(index, toReport(this.jobAt(index)))
    }
    this.finish()
  }

  /** Takes jobs out that were not begun, to be given back. */
  take(index: number): Job | undefined {
    return this.#close(index) ? this.jobAt(index) : undefined
  }

  /** Tells that the batch is over, once it is. */
  finish(): void {
    if (this.#left > 0 || this.#isFinished) return
    this.#isFinished = true
    this.#listener.finish(this.batch)
  }

  #close(index: number): boolean {
    if (this.isOver(index)) return false
    this.#flags[index] = over
    this.#left--
    return true
  }
}
