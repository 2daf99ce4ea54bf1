/** A scheduler of the simplest kind around a pool, which checks what every executor promises. */

import { setTimeout } from 'node:timers/promises'
import { expect, onTestFinished } from 'vitest'
import type { Job, Notice, TaskReport } from '../../../../src/backends/backend.ts'
import type { Batch, ExecutorListener } from '../../../../src/backends/local/executor.ts'
import {
  WorkerPool,
  type WorkerPoolOptions,
} from '../../../../src/backends/local/functions/worker-pool.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { ComputeTask } from '../../../../src/tasks/compute-task.ts'
import type { TaskOptions } from '../../../../src/tasks/task-fields.ts'
import type { ManualClock } from '../../../../src/testing/manual-clock.ts'

type AnyFunction = (...args: never[]) => unknown
export type LastReport = Exclude<TaskReport, { kind: 'start' }>

export interface DriverOptions extends Partial<Omit<WorkerPoolOptions, 'listener'>> {
  /** Fixes the size of batches, instead of asking the pool. */
  readonly batchSize?: number
}

interface Entry {
  readonly reports: TaskReport[]
  readonly end: PromiseWithResolvers<LastReport>
  readonly start: PromiseWithResolvers<TaskReport>
}

export class PoolDriver implements ExecutorListener {
  readonly pool: WorkerPool
  readonly notices: Notice[] = []
  readonly warnings: string[] = []
  readonly warningTexts: string[] = []
  /** Uids in the order in which they were given back. */
  readonly givenBack: string[] = []
  readonly batchSizes: number[] = []
  #queue: Job[] = []
  readonly #entries = new Map<Job, Entry>()
  readonly #open = new Set<Batch>()
  #onAllFinished = (): void => {}
  readonly #at = new Map<Job, Batch>()
  readonly #fixedSize: number | undefined
  #isPumping = false
  #waiters: { readonly count: number; readonly resolve: () => void }[] = []

  constructor(options: DriverOptions = {}) {
    const { batchSize, ...rest } = options
    this.#fixedSize = batchSize
    this.pool = new WorkerPool({
      size: 2,
      isolation: 'thread',
      nodeId: 'n',
      idPrefix: 'n',
      clock: systemClock,
      // A manual clock runs faster than an import.
      importTimeoutSeconds: 1e9,
      log: {
        warn: (code, text) => {
          this.warnings.push(code)
          this.warningTexts.push(text)
        },
      },
      ...rest,
      listener: this,
    })
    onTestFinished(() => this.pool.close('the test is over'))
  }

  /** Queues jobs that call the function, one for each list of arguments. */
  submit<F extends AnyFunction, const Lists extends readonly Readonly<Parameters<F>>[]>(
    work: F,
    argumentLists: Lists,
    options: TaskOptions = {},
  ): { -readonly [Index in keyof Lists]: Job } {
    const jobs = argumentLists.map((args) => toJob(work, args, options))
    this.enqueue(jobs)
    return jobs as { -readonly [Index in keyof Lists]: Job }
  }

  enqueue(jobs: readonly Job[]): void {
    this.#admit(jobs)
    this.#queue.push(...jobs)
    this.pump()
  }

  run<F extends AnyFunction>(work: F, ...args: Parameters<F>): Promise<LastReport> {
    return this.ended(this.submit(work, [args])[0])
  }

  runWithGpus(work: () => unknown, gpuIds: readonly number[]): Promise<LastReport> {
    const job = toJob(work, [])
    this.#admit([job])
    this.assign({ jobs: [job], gpuIds })
    return this.ended(job)
  }

  ended(job: Job): Promise<LastReport> {
    return this.#entry(job).end.promise
  }

  async allEnded<Jobs extends readonly Job[]>(
    jobs: Jobs,
  ): Promise<{ -readonly [Index in keyof Jobs]: LastReport }> {
    const reports = await Promise.all(jobs.map((job) => this.ended(job)))
    return reports as { -readonly [Index in keyof Jobs]: LastReport }
  }

  started(job: Job): Promise<TaskReport> {
    return this.#entry(job).start.promise
  }

  reportsOf(job: Job): readonly TaskReport[] {
    return this.#entry(job).reports
  }

  /** Resolves when the pool has sent so many notices. */
  noticed(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ count, resolve })
      this.#checkNotices()
    })
  }

  /**
   * Every batch is finished, at the latest when its worker has passed it, and every job ended once.
   */
  async expectAllOver(): Promise<void> {
    if (this.#open.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onAllFinished = resolve
      })
    }
    expect(this.#at.size).toBe(0)
    for (const { reports } of this.#entries.values()) {
      const kinds = reports.map(({ kind }) => (kind === 'start' ? kind : 'end'))
      expect([['end'], ['start', 'end']]).toContainEqual(kinds)
    }
  }

  pump(): void {
    if (this.#isPumping) return
    this.#isPumping = true
    if (this.#queue.length > 0 && this.pool.canPrepare) this.pool.prepare(this.#queue.length)
    while (this.#queue.length > 0 && this.pool.freeSlots > 0) {
      const size = this.#fixedSize ?? this.pool.batchSize(this.#queue.length)
      const batch = { jobs: this.#queue.splice(0, size), gpuIds: [] }
      this.batchSizes.push(batch.jobs.length)
      this.assign(batch)
    }
    this.#isPumping = false
  }

  assign(batch: Batch): void {
    this.#open.add(batch)
    for (const job of batch.jobs) this.#at.set(job, batch)
    this.pool.assign(batch)
  }

  cancel(job: Job, reason = 'no longer wanted'): void {
    if (this.#at.has(job)) return this.pool.cancel(job, reason)
    if (!this.#queue.includes(job)) return
    this.#queue = this.#queue.filter((one) => one !== job)
    this.#at.set(job, { jobs: [], gpuIds: [] })
    this.report(job, { kind: 'cancel', reason })
  }

  report(job: Job, report: TaskReport): void {
    const { reports, end, start } = this.#entry(job)
    reports.push(report)
    expect(this.#at.has(job), `${job.uid}: ${report.kind} though it is not at the pool`).toBe(true)
    if (report.kind === 'start') return start.resolve(report)
    this.#at.delete(job)
    end.resolve(report)
  }

  resultDropped(): void {}

  notice(notice: Notice): void {
    this.notices.push(notice)
    this.#checkNotices()
  }

  requeue(jobs: readonly Job[]): void {
    for (const job of jobs) {
      expect(this.#at.delete(job)).toBe(true)
      expect(this.#entry(job).reports).toEqual([])
      this.givenBack.push(job.uid)
    }
    this.#queue.unshift(...jobs)
    this.pump()
  }

  finish(batch: Batch): void {
    expect(this.#open.delete(batch)).toBe(true)
    for (const job of batch.jobs) expect(this.#at.get(job)).not.toBe(batch)
    this.pump()
    if (this.#open.size === 0) this.#onAllFinished()
  }

  #admit(jobs: readonly Job[]): void {
    for (const job of jobs) {
      const end = Promise.withResolvers<LastReport>()
      this.#entries.set(job, { reports: [], end, start: Promise.withResolvers() })
    }
  }

  #entry(job: Job): Entry {
    const entry = this.#entries.get(job)
    if (entry === undefined) throw new Error(`${job.uid} was never submitted`)
    return entry
  }

  #checkNotices(): void {
    const ready = this.#waiters.filter(({ count }) => this.notices.length >= count)
    this.#waiters = this.#waiters.filter((waiter) => !ready.includes(waiter))
    for (const { resolve } of ready) resolve()
  }
}

export function toJob<F extends AnyFunction>(
  work: F,
  args: Readonly<Parameters<F>>,
  options: TaskOptions = {},
): Job {
  const task = new ComputeTask({ ...options, function: work as never, args })
  return { sessionId: 's', uid: task.uid, attempt: 1, spec: task.spec }
}

/** The value of a job that completed. */
export function valueOf(report: LastReport): unknown {
  if (report.kind === 'fail') throw report.error
  if (report.kind !== 'complete') throw new Error(`expected completion, got ${report.kind}`)
  return report.value
}

/** The error of a job that failed. */
export function errorOf(report: LastReport): Error & { code?: unknown; field?: unknown } {
  if (report.kind !== 'fail') throw new Error(`expected a failure, got ${report.kind}`)
  return report.error as Error
}

/** The clock goes no faster than time: deadlines of workers must not pass on a busy machine. */
export async function advanceUntil(clock: ManualClock, isDone: () => boolean): Promise<void> {
  while (!isDone()) {
    await setTimeout(10)
    await clock.advance(10)
  }
}
