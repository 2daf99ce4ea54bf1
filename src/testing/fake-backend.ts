/** A backend that does nothing by itself: a test tells it what to report, and when. */

import type {
  AnyTask,
  Backend,
  BackendListener,
  Connection,
  Job,
  Notice,
  Refusal,
  TaskReport,
} from '../backends/backend.ts'

/** What a `FakeBackend` says of itself; without `refuse` it takes every task. */
export interface FakeBackendOptions {
  readonly name?: string
  readonly model?: string
  readonly refuse?: (task: AnyTask) => Refusal | null
}

/** Jobs lie in `jobs` until the test reports about them. Closing cancels what is left. */
export class FakeBackend implements Backend {
  readonly name: string
  readonly model?: string
  readonly jobs: Job[] = []
  readonly cancels: { readonly job: Job; readonly reason: string }[] = []
  readonly #refuse: (task: AnyTask) => Refusal | null
  readonly #latest = new Map<string, Job>()
  readonly #listeners = new Map<Job, BackendListener>()
  #connected: BackendListener | undefined
  #closing: Promise<void> | null = null
  #submitted: (() => void)[] = []

  constructor(options: FakeBackendOptions = {}) {
    this.name = options.name ?? 'fake'
    if (options.model !== undefined) this.model = options.model
    this.#refuse = options.refuse ?? (() => null)
  }

  refuse(task: AnyTask): Refusal | null {
    return this.#refuse(task)
  }

  connect(listener: BackendListener): Connection {
    this.#connected = listener
    return {
      submit: (jobs) => {
        for (const job of jobs) {
          this.jobs.push(job)
          this.#latest.set(job.uid, job)
          this.#listeners.set(job, listener)
        }
        if (this.#closing !== null) void this.#cancelAll('backend closed')
        for (const wake of this.#submitted.splice(0)) wake()
      },
      cancel: (job, reason) => {
        this.cancels.push({ job, reason })
      },
      release: (reason) => this.#cancelAll(reason, listener),
    }
  }

  /** The latest job of a task; a later attempt is another job. */
  jobOf(task: { readonly uid: string }): Job {
    const job = this.#latest.get(task.uid)
    if (job === undefined) throw new Error(`${task.uid} was not submitted to ${this.name}`)
    return job
  }

  report(job: Job, report: TaskReport): void {
    this.#listeners.get(job)?.report(job, report)
  }

  start(task: { readonly uid: string }): void {
    this.report(this.jobOf(task), { kind: 'start', workerId: 'f1', nodeId: 'fake-node' })
  }

  complete(task: { readonly uid: string }, value?: unknown): void {
    this.report(this.jobOf(task), { kind: 'complete', value })
  }

  fail(task: { readonly uid: string }, error: unknown): void {
    this.report(this.jobOf(task), { kind: 'fail', error })
  }

  notice(notice: Notice): void {
    this.#connected?.notice(notice)
  }

  /** Resolves at the next submission. */
  nextSubmission(): Promise<void> {
    return new Promise((resolve) => this.#submitted.push(resolve))
  }

  close(): Promise<void> {
    this.#closing ??= this.#cancelAll('backend closed')
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #cancelAll(reason: string, only?: BackendListener): Promise<void> {
    for (const [job, listener] of this.#listeners) {
      if (only !== undefined && listener !== only) continue
      this.#listeners.delete(job)
      listener.report(job, { kind: 'cancel', reason })
    }
  }
}
