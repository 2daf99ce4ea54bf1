/** Creates jobs from tasks, for tests of a backend without a session. */

import type { AnyTask, ConnectedSession, Job } from '../backends/backend.ts'

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
