/** Assigns waiting jobs to executors by priority and age, as resources and free slots allow. */

import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { BackendListener, Job, Notice, TaskReport } from '../backend.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'
import { JobQueue } from './job-queue.ts'
import { type Client, type ExecutorKind, ScheduledJob, ScheduledJobs } from './scheduled-jobs.ts'
import { type Capacity, type Grant, Slots } from './slots.ts'

const kinds: readonly ExecutorKind[] = ['functions', 'programs', 'closures']

export class Scheduler implements ExecutorListener {
  readonly #slots: Slots
  readonly #queues: Readonly<Record<ExecutorKind, JobQueue<ScheduledJob>>> = {
    functions: new JobQueue(),
    programs: new JobQueue(),
    closures: new JobQueue(),
  }
  readonly #jobs = new ScheduledJobs()
  readonly #grants = new Map<Batch, Grant>()
  /** How many jobs each client has here. `#waiters` holds the `drained` callers of each client. */
  readonly #open = new Map<BackendListener, number>()
  readonly #waiters = new Map<BackendListener, (() => void)[]>()
  readonly #onNotice: (notice: Notice) => void
  #executors: Readonly<Record<ExecutorKind, Executor>> | null = null
  #sequence = 0
  #isBeginning = false
  #closeReason: string | null = null

  constructor(capacity: Capacity, onNotice: (notice: Notice) => void) {
    this.#slots = new Slots(capacity)
    this.#onNotice = onNotice
  }

  /** The executors report to this scheduler, so they are created after it. */
  use(executors: Readonly<Record<ExecutorKind, Executor>>): void {
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
    const taken = jobs.length - wrong.length
    this.#open.set(listener, (this.#open.get(listener) ?? 0) + taken)
    for (const { job, error: cause } of wrong) {
      const text = `this is no job, and cannot run: ${messageOf(cause)}`
      listener.report(job, { kind: 'fail', error: new BackendError(text, { cause }) })
    }
    this.#beginJobs()
  }

  cancel(job: Job, reason: string): void {
    const scheduled = this.#jobs.find(job)
    if (scheduled !== null) this.#cancel(scheduled, reason)
    // The canceled job may have blocked jobs behind it.
    this.#beginJobs()
  }

  /** The job in the form that its executor got; `null` if no executor has it. */
  assigned(job: Job): Job | null {
    const scheduled = this.#jobs.find(job)
    return scheduled === null || scheduled.isWaiting ? null : scheduled
  }

  /** Cancels all jobs of a client. No other job begins before all of them are canceled. */
  cancelAll(listener: BackendListener, reason: string): void {
    this.#withoutBeginning(() => {
      for (const job of this.#jobs.toArray()) {
        if (job.client.listener === listener) this.#cancel(job, reason)
      }
    })
    this.#beginJobs()
  }

  /** Takes back the jobs of a client that no executor has yet. They get no report. */
  withdraw(listener: BackendListener): Job[] {
    const taken = this.#jobs.toArray().filter(({ isWaiting, client }) => {
      return isWaiting && client.listener === listener
    })
    for (const job of taken) {
      this.#queues[job.executor].remove(job)
      this.#jobs.delete(job)
      this.#leave(listener)
    }
    // A withdrawn job may have blocked jobs behind it.
    if (taken.length > 0) this.#beginJobs()
    return taken.map(({ original }) => original)
  }

  /** Cancels waiting jobs, and later those that are given back. Executors end the jobs they run. */
  close(reason: string): void {
    this.#closeReason = reason
    this.#withoutBeginning(() => {
      for (const job of this.#jobs.toArray()) {
        if (job.isWaiting) this.#cancel(job, reason)
      }
    })
  }

  /** Resolves when this client has no job here. */
  async drained(listener: BackendListener): Promise<void> {
    if ((this.#open.get(listener) ?? 0) === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiters.set(listener, [...(this.#waiters.get(listener) ?? []), resolve])
    await promise
  }

  /** A function that calls the job's closure with its arguments; `null` for any other job. */
  closureOf(job: Job): (() => unknown) | null {
    const scheduled = this.#scheduled(job)
    return scheduled?.client.session.closureOf(scheduled.original) ?? null
  }

  report(job: Job, report: TaskReport): void {
    const scheduled = this.#scheduled(job)
    if (scheduled === null) return
    const { original, client } = scheduled
    const { listener } = client
    if (report.kind === 'start') return listener.report(original, report)
    this.#jobs.delete(scheduled)
    listener.report(original, report)
    this.#leave(listener)
  }

  resultDropped(job: Job): void {
    if (job instanceof ScheduledJob) job.client.listener.notice({ kind: 'late-result' })
  }

  notice(notice: Notice, job?: Job): void {
    if (job instanceof ScheduledJob) job.client.listener.notice(notice)
    else this.#onNotice(notice)
  }

  giveBack(jobs: readonly Job[]): void {
    const back: Record<ExecutorKind, ScheduledJob[]> = { functions: [], programs: [], closures: [] }
    for (const job of jobs) {
      const scheduled = this.#scheduled(job)
      if (scheduled === null || scheduled.isWaiting) continue
      if (this.#closeReason !== null) {
        this.report(job, { kind: 'cancel', reason: this.#closeReason })
        continue
      }
      scheduled.isWaiting = true
      back[scheduled.executor].push(scheduled)
    }
    for (const kind of kinds) if (back[kind].length > 0) this.#queues[kind].putBack(back[kind])
    this.#beginJobs()
  }

  finish(batch: Batch): void {
    const grant = this.#grants.get(batch)
    if (grant === undefined) return
    this.#grants.delete(batch)
    this.#slots.giveBack(grant)
    this.#beginJobs()
  }

  #cancel(job: ScheduledJob, reason: string): void {
    if (!this.#jobs.has(job)) return
    if (job.isWaiting) {
      this.#queues[job.executor].remove(job)
      this.report(job, { kind: 'cancel', reason })
    } else this.#executors?.[job.executor].cancel(job, reason)
  }

  /** The scheduled job behind an executor's report; `null` if it has ended. */
  #scheduled(job: Job): ScheduledJob | null {
    return job instanceof ScheduledJob && this.#jobs.has(job) ? job : null
  }

  #leave(listener: BackendListener): void {
    const left = (this.#open.get(listener) ?? 1) - 1
    this.#open.set(listener, left)
    if (left === 0) this.#resolveDrained(listener)
  }

  #resolveDrained(listener: BackendListener): void {
    this.#open.delete(listener)
    const waiters = this.#waiters.get(listener) ?? []
    this.#waiters.delete(listener)
    for (const resolve of waiters) resolve()
  }

  #withoutBeginning(act: () => void): void {
    const wasBeginning = this.#isBeginning
    this.#isBeginning = true
    try {
      act()
    } finally {
      this.#isBeginning = wasBeginning
    }
  }

  /** Begins all jobs that can begin. A nested call leaves them to the loop of the outer call. */
  #beginJobs(): void {
    if (this.#isBeginning || this.#closeReason !== null) return
    this.#withoutBeginning(() => {
      while (this.#beginOne());
    })
  }

  /**
   * Begins the first job whose executor has a free slot. If that job does not fit into the free
   * resources, only a job that needs none may begin, so small requests cannot starve a large one. A
   * job that waits for the start of a worker holds no resources: jobs of other executors overtake
   * it, unless their priority is lower, because they may run for hours.
   */
  #beginOne(): boolean {
    const executors = this.#executors
    if (executors === null) return false
    let first: ScheduledJob | undefined
    let free: ScheduledJob | undefined
    let awaiting: ScheduledJob | undefined
    for (const kind of kinds) {
      const [queue, executor] = [this.#queues[kind], executors[kind]]
      if (queue.length === 0) continue
      if (executor.canPrepare === true) this.#prepare(executor, queue)
      if (executor.freeSlots <= 0) {
        if (executor.isPreparing === true) awaiting = queue.peek()
        continue
      }
      const head = queue.peek()
      if (head === undefined) continue
      if (first === undefined || isBefore(head, first)) first = head
      if (head.isFree) free = head
    }
    if (first === undefined) return false
    const isHeld = awaiting !== undefined && awaiting.spec.priority > first.spec.priority
    const next = !isHeld && this.#slots.fits(first.request) ? first : free
    if (next === undefined) return false
    this.#begin(next, executors[next.executor])
    return true
  }

  #prepare(executor: Executor, queue: JobQueue<ScheduledJob>): void {
    const head = queue.peek()
    if (head === undefined) return
    const batches = Math.min(queue.length, this.#slots.count(head.request))
    if (batches > 0) executor.prepare?.(batches)
  }

  #begin(first: ScheduledJob, executor: Executor): void {
    const queue = this.#queues[first.executor]
    const { request } = first
    const max = first.isDefault ? executor.batchSize(queue.length) : 1
    const jobs: Job[] = []
    do {
      const scheduled = queue.take()
      if (scheduled === undefined) break
      scheduled.isWaiting = false
      jobs.push(scheduled)
    } while (jobs.length < max && queue.peek()?.isDefault === true)
    const grant = this.#slots.take(request)
    const batch: Batch = { jobs, gpuIds: grant.gpuIds }
    this.#grants.set(batch, grant)
    executor.assign(batch)
  }
}

function isBefore(a: ScheduledJob, b: ScheduledJob): boolean {
  const [mine, other] = [a.spec.priority, b.spec.priority]
  if (mine !== other) return mine > other
  return a.isRetry === b.isRetry ? a.sequence < b.sequence : a.isRetry
}
