/** A backend and a session for tests. They do nothing by themselves: the test decides. */

import type { AnyTask, Backend, BackendListener, ConnectedSession } from '../backends/backend.ts'
import type { Connection, Job, Notice, Refusal, SampledNode } from '../backends/backend.ts'
import type { TaskReport } from '../backends/backend.ts'
import type { TaskSpec } from '../tasks/spec.ts'
import { once } from '../foundation/service.ts'

/** The properties of a `FakeBackend`, and which tasks it refuses. */
export interface FakeBackendOptions {
  readonly name?: string
  readonly model?: string
  readonly nodes?: readonly SampledNode[]
  /** Returns the reason for refusing a task. Default: accepts every task. */
  readonly refuse?: (spec: TaskSpec) => Refusal | null
}

/**
 * A job stays open until the test reports its end. Closing cancels the open jobs.
 *
 * @example
 * const backend = new FakeBackend()
 * await using session = new Session([backend])
 * const task = new ComputeTask({ executable: 'simulate' })
 * await session.submitTasks([task])
 * backend.start(task)
 * backend.fail(task, new Error('no such grid'))
 * await session.waitTasks([task])
 * assert.match(String(task.error), /no such grid/)
 */
export class FakeBackend implements Backend {
  readonly name: string
  readonly model?: string
  readonly nodes: readonly SampledNode[]
  /** All submitted jobs in order. */
  readonly jobs: Job[] = []
  /** The jobs that sessions reported as recorded, in order. */
  readonly recorded: Job[] = []
  /** The cancellations that sessions requested. The test must report the end of these jobs. */
  readonly cancels: { readonly job: Job; readonly reason: string }[] = []
  readonly #findRefusal: (spec: TaskSpec) => Refusal | null
  readonly #latestJobs = new Map<string, Job>()
  readonly #listeners = new Map<Job, BackendListener>()
  readonly #endedJobs = new Set<Job>()
  #lastListener: BackendListener | undefined
  #session: ConnectedSession | undefined
  readonly #close = once(() => this.#cancelAll('backend closed'))
  #submissionWaiters: (() => void)[] = []

  constructor(options: FakeBackendOptions = {}) {
    this.name = options.name ?? 'fake'
    if (options.model !== undefined) this.model = options.model
    this.nodes = options.nodes ?? []
    this.#findRefusal = options.refuse ?? (() => null)
  }

  refuse(spec: TaskSpec): Refusal | null {
    return this.#findRefusal(spec)
  }

  connect(listener: BackendListener, session?: ConnectedSession): Connection {
    this.#lastListener = listener
    this.#session = session
    return {
      submit: (jobs) => {
        for (const job of jobs) {
          this.jobs.push(job)
          this.#latestJobs.set(job.uid, job)
          this.#listeners.set(job, listener)
        }
        if (this.#close.isCalled) void this.#cancelAll('backend closed')
        for (const wake of this.#submissionWaiters.splice(0)) wake()
      },
      cancel: (job, reason) => {
        this.cancels.push({ job, reason })
      },
      recorded: (jobs) => {
        for (const job of jobs) this.recorded.push(job)
      },
      release: (reason) => this.#cancelAll(reason, listener),
    }
  }

  /** The latest job of a task. Each attempt is a separate job. */
  jobOf(task: { readonly uid: string }): Job {
    const job = this.#latestJobs.get(task.uid)
    if (job === undefined) throw new Error(`${task.uid} was not submitted to ${this.name}`)
    return job
  }

  /** Returns a function that runs the closure of a task; `null` if the task has no closure. */
  closureOf(task: { readonly uid: string }): (() => unknown) | null {
    return this.#session?.closureOf(this.jobOf(task)) ?? null
  }

  /** Reports on a job to its session. */
  report(job: Job, report: TaskReport): void {
    if (isFinalReport(report)) this.#endedJobs.add(job)
    this.#listeners.get(job)?.report(job, report)
  }

  /** Reports that the task has started. Its state becomes RUNNING. */
  start(task: { readonly uid: string }): void {
    this.report(this.jobOf(task), { kind: 'start', workerId: 'f1', nodeId: 'fake-node' })
  }

  /** Reports that the task has completed with a value. Its state becomes DONE. */
  complete(task: { readonly uid: string }, value?: unknown): void {
    this.report(this.jobOf(task), { kind: 'complete', value })
  }

  /** Reports that the attempt has failed. The task is retried, or its state becomes FAILED. */
  fail(task: { readonly uid: string }, error: unknown): void {
    this.report(this.jobOf(task), { kind: 'fail', error })
  }

  /** Sends a notice to the session that connected last. */
  notice(notice: Notice): void {
    this.#lastListener?.notice(notice)
  }

  /** Resolves at the next submission. */
  nextSubmission(): Promise<void> {
    return new Promise((resolve) => this.#submissionWaiters.push(resolve))
  }

  close(): Promise<void> {
    return this.#close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #cancelAll(reason: string, only?: BackendListener): Promise<void> {
    for (const [job, listener] of this.#listeners) {
      if (only !== undefined && listener !== only) continue
      this.#listeners.delete(job)
      if (this.#endedJobs.has(job)) continue
      listener.report(job, { kind: 'cancel', reason })
    }
  }
}

/** Accepts any value, because tests also send invalid reports. */
const isFinalReport = (report: unknown): boolean =>
  typeof report === 'object' && report !== null && 'kind' in report && report.kind !== 'start'

/** Creates jobs as a session does. Its tasks never change state and cannot be awaited. */
export class FakeSession implements ConnectedSession {
  readonly id: string
  readonly #tasks = new WeakMap<Job, AnyTask>()

  constructor(id = 'fake-session') {
    this.id = id
  }

  /** Creates a new job for the task on each call. */
  createJob(task: AnyTask, attempt = 1): Job {
    const job: Job = { sessionId: this.id, uid: task.uid, attempt, spec: task.spec }
    this.#tasks.set(job, task)
    return job
  }

  closureOf(job: Job): (() => unknown) | null {
    const task = this.#tasks.get(job)
    if (task?.kind !== 'function' || task.spec.kind !== 'closure') return null
    const body = task.function as ((...args: readonly unknown[]) => unknown) | null
    return body === null ? null : () => body(...task.args)
  }
}
