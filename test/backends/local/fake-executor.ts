/** An executor that begins nothing by itself: a test ends its jobs. */

import type { Job, TaskReport } from '../../../src/backends/backend.ts'
import type { Batch, Executor, ExecutorListener } from '../../../src/backends/local/executor.ts'
import { type ExecutorKind, ScheduledJob } from '../../../src/backends/local/scheduled-jobs.ts'
import { Scheduler } from '../../../src/backends/local/scheduler.ts'
import type { Capacity } from '../../../src/backends/local/slots.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import type { ResourceRequest } from '../../../src/tasks/resources.ts'
import { FakeSession } from '../../../src/testing/fake-backend.ts'
import { RecordingListener } from '../../../src/testing/recorders.ts'

class FakeExecutor implements Executor {
  readonly batches: Batch[] = []
  readonly begun: Job[] = []
  readonly #listener: ExecutorListener
  readonly #assigned = new Map<Job, Job>()
  readonly #left = new Map<Batch, Set<Job>>()
  max: number
  size = 1
  /** Slots that need a start, which a test makes by raising `max`. */
  canPrepare = false
  isPreparing = false
  readonly prepared: number[] = []

  constructor(listener: ExecutorListener, max = 1000) {
    this.#listener = listener
    this.max = max
  }

  get freeSlots(): number {
    return this.max - this.#left.size
  }

  get running(): Job[] {
    return [...this.#left.values()].flatMap((jobs) => [...jobs].map(originalOf))
  }

  get runningBatches(): Batch[] {
    return [...this.#left.keys()]
  }

  prepare(batches: number): void {
    this.prepared.push(batches)
    this.canPrepare = false
    this.isPreparing = true
  }

  batchSize(): number {
    return this.size
  }

  assign(batch: Batch): void {
    this.batches.push(batch)
    for (const job of batch.jobs) {
      this.begun.push(originalOf(job))
      this.#assigned.set(originalOf(job), job)
    }
    this.#left.set(batch, new Set(batch.jobs))
  }

  cancel(job: Job, reason: string): void {
    this.end(job, { kind: 'cancel', reason })
  }

  end(job: Job, report: TaskReport = { kind: 'complete', value: job.uid }): void {
    for (const [batch, jobs] of this.#left) {
      if (!jobs.delete(this.#assignedJob(job))) continue
      this.report(job, report)
      this.#finishIfEmpty(batch, jobs)
    }
  }

  /** Reports about a job that may have ended. */
  report(job: Job, report: TaskReport): void {
    this.#listener.report(this.#assignedJob(job), report)
  }

  /** The scheduler's own object for a job that a test submitted. */
  #assignedJob(job: Job): Job {
    return this.#assigned.get(job) ?? job
  }

  /** As when the worker died before it began these. */
  giveBack(...given: Job[]): void {
    // A returned job may arrive again, in another batch, before the next one is examined.
    for (const [batch, jobs] of Array.from(this.#left)) {
      const back = given.map((job) => this.#assignedJob(job)).filter((job) => jobs.delete(job))
      if (back.length === 0) continue
      this.#listener.requeue(back)
      this.#finishIfEmpty(batch, jobs)
    }
  }

  close(reason: string): Promise<void> {
    for (const job of this.running) this.cancel(job, reason)
    return Promise.resolve()
  }

  #finishIfEmpty(batch: Batch, jobs: Set<Job>): void {
    if (jobs.size > 0) return
    this.#left.delete(batch)
    this.#listener.finish(batch)
  }
}

const originalOf = (job: Job): Job => (job instanceof ScheduledJob ? job.original : job)

/** A scheduler over three fake executors, and one client. */
export function openScheduler(capacity: Partial<Capacity> = {}) {
  const whole = { cores: 4, memoryMb: 1000, gpuIds: [], ...capacity }
  const scheduler = new Scheduler(whole, () => {})
  const [functions, programs, closures] = [
    new FakeExecutor(scheduler),
    new FakeExecutor(scheduler),
    new FakeExecutor(scheduler),
  ]
  scheduler.setExecutors({ functions, programs, closures })
  const listener = new RecordingListener()
  const submit = (jobs: readonly Job[], kind: ExecutorKind = 'functions', to = listener): void =>
    scheduler.submit(jobs, () => kind, { listener: to, session: new FakeSession() })
  return { scheduler, functions, programs, closures, listener, submit }
}

interface JobOptions {
  readonly priority?: number
  readonly resources?: Partial<ResourceRequest>
}

export function jobOf(uid: string, options: JobOptions = {}): Job {
  // Uids of tasks are unique; those of jobs are what a test reads.
  const task = new ComputeTask({ executable: 'x', ...options })
  return { sessionId: 's', uid, attempt: 1, spec: task.spec }
}

export const jobsOf = (count: number, options: JobOptions = {}): Job[] =>
  Array.from({ length: count }, (_, at) => jobOf(String(at), options))

export const uids = (jobs: readonly Job[]): string => jobs.map(({ uid }) => uid).join(' ')
