/** Assigns waiting jobs to executors by priority and age, as resources and free slots allow. */

import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { BackendListener, Job, Notice, TaskReport } from '../backend.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'
import { JobQueue } from './job-queue.ts'
import { type Client, type ExecutorKind, ScheduledJob, ScheduledJobs } from './scheduled-jobs.ts'
import { type Capacity, type Grant, Slots } from './slots.ts'

const executorKinds: readonly ExecutorKind[] = ['functions', 'programs', 'closures']

export class Scheduler implements ExecutorListener {
  readonly #slots: Slots
  readonly #queues: Readonly<Record<ExecutorKind, JobQueue<ScheduledJob>>> = {
    functions: new JobQueue(),
    programs: new JobQueue(),
    closures: new JobQueue(),
  }
  readonly #jobs = new ScheduledJobs()
  readonly #grants = new Map<Batch, Grant>()
  readonly #jobCounts = new Map<BackendListener, number>()
  readonly #drainCallbacks = new Map<BackendListener, (() => void)[]>()
  readonly #onNotice: (notice: Notice) => void
  #executors: Readonly<Record<ExecutorKind, Executor>> | null = null
  #sequence = 0
  #isDispatching = false
  #closeReason: string | null = null

  constructor(capacity: Capacity, onNotice: (notice: Notice) => void) {
    this.#slots = new Slots(capacity)
    this.#onNotice = onNotice
  }

  setExecutors(executors: Readonly<Record<ExecutorKind, Executor>>): void {
    this.#executors = executors
  }

  submit(jobs: readonly Job[], kindOf: (job: Job) => ExecutorKind, client: Client): void {
    const { listener } = client
    const wrong: { readonly job: Job; readonly error: unknown }[] = []
    for (const job of jobs) {
      try {
        const scheduled = new ScheduledJob(job, ++this.#sequence, kindOf(job), client)
        this.#jobs.add(scheduled)
        this.#queues[scheduled.executor].push(scheduled)
      } catch (error) {
        wrong.push({ job, error })
      }
    }
    const acceptedCount = jobs.length - wrong.length
    this.#jobCounts.set(listener, (this.#jobCounts.get(listener) ?? 0) + acceptedCount)
    for (const { job, error: cause } of wrong) {
      const text = `this is no job, and cannot run: ${messageOf(cause)}`
      listener.report(job, { kind: 'fail', error: new BackendError(text, { cause }) })
    }
    this.#dispatchAll()
  }

  cancel(job: Job, reason: string): void {
    const scheduled = this.#jobs.find(job)
    if (scheduled !== null) this.#cancel(scheduled, reason)
    this.#dispatchAll()
  }

  /** The job that was passed to an executor; `null` if it still waits or has ended. */
  findAssigned(job: Job): Job | null {
    const scheduled = this.#jobs.find(job)
    return scheduled === null || scheduled.isWaiting ? null : scheduled
  }

  /** Cancels all jobs of a client. No other job begins before all of them are canceled. */
  cancelAll(listener: BackendListener, reason: string): void {
    this.#withoutDispatch(() => {
      for (const job of this.#jobs.toArray()) {
        if (job.client.listener === listener) this.#cancel(job, reason)
      }
    })
    this.#dispatchAll()
  }

  /** Removes and returns the waiting jobs of a client. They get no report. */
  withdraw(listener: BackendListener): Job[] {
    const withdrawn = this.#jobs.toArray().filter(({ isWaiting, client }) => {
      return isWaiting && client.listener === listener
    })
    for (const job of withdrawn) {
      this.#queues[job.executor].remove(job)
      this.#jobs.delete(job)
      this.#countDown(listener)
    }
    if (withdrawn.length > 0) this.#dispatchAll()
    return withdrawn.map(({ original }) => original)
  }

  /**
   * Cancels all waiting jobs and, from now on, each job that is requeued. Executors cancel the jobs
   * that they run.
   */
  close(reason: string): void {
    this.#closeReason = reason
    this.#withoutDispatch(() => {
      for (const job of this.#jobs.toArray()) {
        if (job.isWaiting) this.#cancel(job, reason)
      }
    })
  }

  async waitUntilDrained(listener: BackendListener): Promise<void> {
    if ((this.#jobCounts.get(listener) ?? 0) === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#drainCallbacks.set(listener, [...(this.#drainCallbacks.get(listener) ?? []), resolve])
    await promise
  }

  closureOf(job: Job): (() => unknown) | null {
    const scheduled = this.#findOpenJob(job)
    return scheduled?.client.session.closureOf(scheduled.original) ?? null
  }

  report(job: Job, report: TaskReport): void {
    const scheduled = this.#findOpenJob(job)
    if (scheduled === null) return
    const { original, client } = scheduled
    const { listener } = client
    if (report.kind === 'start') return listener.report(original, report)
    this.#jobs.delete(scheduled)
    listener.report(original, report)
    this.#countDown(listener)
  }

  resultDropped(job: Job): void {
    if (job instanceof ScheduledJob) job.client.listener.notice({ kind: 'late-result' })
  }

  notice(notice: Notice, job?: Job): void {
    if (job instanceof ScheduledJob) job.client.listener.notice(notice)
    else this.#onNotice(notice)
  }

  requeue(jobs: readonly Job[]): void {
    const returned: Record<ExecutorKind, ScheduledJob[]> = {
      functions: [],
      programs: [],
      closures: [],
    }
    for (const job of jobs) {
      const scheduled = this.#findOpenJob(job)
      if (scheduled === null || scheduled.isWaiting) continue
      if (this.#closeReason !== null) {
        this.report(job, { kind: 'cancel', reason: this.#closeReason })
        continue
      }
      scheduled.isWaiting = true
      returned[scheduled.executor].push(scheduled)
    }
    for (const kind of executorKinds)
      if (returned[kind].length > 0) this.#queues[kind].requeue(returned[kind])
    this.#dispatchAll()
  }

  finish(batch: Batch): void {
    const grant = this.#grants.get(batch)
    if (grant === undefined) return
    this.#grants.delete(batch)
    this.#slots.release(grant)
    this.#dispatchAll()
  }

  #cancel(job: ScheduledJob, reason: string): void {
    if (!this.#jobs.has(job)) return
    if (job.isWaiting) {
      this.#queues[job.executor].remove(job)
      this.report(job, { kind: 'cancel', reason })
    } else this.#executors?.[job.executor].cancel(job, reason)
  }

  #findOpenJob(job: Job): ScheduledJob | null {
    return job instanceof ScheduledJob && this.#jobs.has(job) ? job : null
  }

  #countDown(listener: BackendListener): void {
    const remaining = (this.#jobCounts.get(listener) ?? 1) - 1
    this.#jobCounts.set(listener, remaining)
    if (remaining > 0) return
    this.#jobCounts.delete(listener)
    const waiters = this.#drainCallbacks.get(listener) ?? []
    this.#drainCallbacks.delete(listener)
    for (const resolve of waiters) resolve()
  }

  #withoutDispatch(act: () => void): void {
    const wasDispatching = this.#isDispatching
    this.#isDispatching = true
    try {
      act()
    } finally {
      this.#isDispatching = wasDispatching
    }
  }

  /** Starts all jobs that can start. A nested call leaves this to the outer call. */
  #dispatchAll(): void {
    if (this.#isDispatching || this.#closeReason !== null) return
    this.#withoutDispatch(() => {
      while (this.#dispatchNext());
    })
  }

  /**
   * Starts the first job whose executor has a free slot. If that job does not fit into the free
   * resources, only a job that needs no resources may start, so that small requests cannot starve a
   * large one. Jobs of other executors may overtake a job that waits for the start of a worker,
   * unless their priority is lower.
   */
  #dispatchNext(): boolean {
    const executors = this.#executors
    if (executors === null) return false
    let first: ScheduledJob | undefined
    let free: ScheduledJob | undefined
    let awaiting: ScheduledJob | undefined
    for (const kind of executorKinds) {
      const [queue, executor] = [this.#queues[kind], executors[kind]]
      if (queue.length === 0) continue
      if (executor.canPrepare === true) this.#prepare(executor, queue)
      if (executor.freeSlots <= 0) {
        if (executor.isPreparing === true) awaiting = queue.peek()
        continue
      }
      const head = queue.peek()
      if (head === undefined) continue
      if (first === undefined || runsBefore(head, first)) first = head
      if (head.needsNoResources) free = head
    }
    if (first === undefined) return false
    const isHeld = awaiting !== undefined && awaiting.spec.priority > first.spec.priority
    const next = !isHeld && this.#slots.fits(first.request) ? first : free
    if (next === undefined) return false
    this.#dispatch(next, executors[next.executor])
    return true
  }

  #prepare(executor: Executor, queue: JobQueue<ScheduledJob>): void {
    const head = queue.peek()
    if (head === undefined) return
    const batches = Math.min(queue.length, this.#slots.countFitting(head.request))
    if (batches > 0) executor.prepare?.(batches)
  }

  #dispatch(first: ScheduledJob, executor: Executor): void {
    const queue = this.#queues[first.executor]
    const { request } = first
    const max = first.hasDefaultRequest ? executor.batchSize(queue.length) : 1
    const jobs: Job[] = []
    do {
      const scheduled = queue.pop()
      if (scheduled === undefined) break
      scheduled.isWaiting = false
      jobs.push(scheduled)
    } while (jobs.length < max && queue.peek()?.hasDefaultRequest === true)
    const grant = this.#slots.acquire(request)
    const batch: Batch = { jobs, gpuIds: grant.gpuIds }
    this.#grants.set(batch, grant)
    executor.assign(batch)
  }
}

function runsBefore(a: ScheduledJob, b: ScheduledJob): boolean {
  const [mine, other] = [a.spec.priority, b.spec.priority]
  if (mine !== other) return mine > other
  return a.isRetry === b.isRetry ? a.sequence < b.sequence : a.isRetry
}
