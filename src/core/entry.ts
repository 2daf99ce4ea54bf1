/** What the ledger knows of a task that has not ended. */

import type { AnyTask, Connection, Job, TaskReport } from '../backends/backend.ts'
import { TaggedJob } from '../backends/job-tag.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Indexed } from '../runtime/indexed-set.ts'
import type { Life } from '../tasks/lifecycle.ts'
import { inWorkDir, type TaskSpec } from '../tasks/spec.ts'
import type { Task } from '../tasks/task.ts'

/** What is known of a task when it is registered. */
export interface Registration {
  /** Binary path, function name or model name; what really runs may be known only later. */
  readonly executable: string
  /** The uids of the tasks that it waits for; told with TaskCreated alone. */
  readonly dependencies?: readonly string[]
  /** Told with all of its events. */
  readonly workflowId?: string | null
  /** What whoever registered it knows it by. */
  readonly owner?: object | null
}

/** How a task ends that never was with a backend. */
export type HeldEnd = Exclude<TaskReport, { readonly kind: 'start' }>

const noDependencies: readonly string[] = Object.freeze([])

export class Entry implements Indexed {
  setIndex = -1
  /** What callers await. */
  readonly task: Task
  /** What runs in its name: itself, or a task that was made later. `null` while it is held. */
  work: AnyTask | null = null
  life: Life
  backend = ''
  connection: Connection | null = null
  /** The backend has its job, so that only the backend can end it. */
  isWithBackend = false
  /** The attempt under way; reports of any other are late. `null` while the task is held. */
  job: Job | null = null
  attempt = 1
  workersLost = 0
  workerId: string | null = null
  nodeId: string | null = null
  /** Binary path, function name or model name; a model may be known only after routing. */
  executable: string
  readonly dependencies: readonly string[]
  readonly workflowId: string | null
  readonly owner: object | null
  /** The attributes that all its events share, once they were needed. */
  attributes: JsonObject | null = null
  /** Set once somebody asked for its end. */
  cancelReason: string | null = null
  /** Called once when it has ended. */
  waiters: Set<() => void> | null = null

  constructor(task: Task, life: Life, registration: Registration) {
    this.task = task
    this.life = life
    this.executable = registration.executable
    this.dependencies = registration.dependencies ?? noDependencies
    this.workflowId = registration.workflowId ?? null
    this.owner = registration.owner ?? null
  }
}

/** What all jobs of a session have in common. */
export interface AttemptSession {
  readonly sessionId: string
  readonly workDir: string | null
}

/** One attempt at the entry's task, which may run something else in its place. */
export class Attempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec
  readonly #entry: Entry

  /** `null` for a job that no ledger made. */
  static entryOf(job: Job): Entry | null {
    return #entry in job ? job.#entry : null
  }

  /** Calls the closure of a job with its arguments; `null` for any other job. */
  static closureOf(job: Job): (() => unknown) | null {
    const work = Attempt.entryOf(job)?.work ?? null
    if (work === null || work.kind !== 'function' || work.spec.kind !== 'closure') return null
    const body = work.function as ((...args: readonly unknown[]) => unknown) | null
    return body === null ? null : () => body(...work.args)
  }

  constructor(entry: Entry, spec: TaskSpec, attempt: number, session: AttemptSession) {
    super()
    this.sessionId = session.sessionId
    this.uid = entry.task.uid
    this.attempt = attempt
    this.spec = inWorkDir(spec, session.workDir)
    this.#entry = entry
  }
}

/** What events call `executable`; a model may be known only after routing. */
export const executableOf = (task: AnyTask): string =>
  task.kind === 'ai' ? (task.model ?? '') : task.executable
