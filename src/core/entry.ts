/** What the ledger knows of a task that has not ended, and of the attempts at it. */

import type { Backend, Connection, Job, TaskReport } from '../backends/backend.ts'
import { TaggedJob } from '../backends/job-tag.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Indexed } from '../runtime/indexed-set.ts'
import type { AnyFunction } from '../tasks/compute-options.ts'
import type { Life } from '../tasks/lifecycle.ts'
import { inWorkDir, type TaskSpec } from '../tasks/spec.ts'
import type { Outcome, TaskHolder, TaskRecord } from '../tasks/task-record.ts'
import type { Task } from '../tasks/task.ts'

/** What runs for a task: a `ComputeTask` or an `AITask` itself, or what a workflow prepared. */
export interface Work {
  readonly spec: TaskSpec
  /** The backend that was asked for. */
  readonly backend: string | null
  /** What a closure calls; a spec cannot hold it. */
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
}

/** Where a job is submitted. The blocks of a workflow have a target that is no whole backend. */
export interface Target {
  readonly backend: Pick<Backend, 'name' | 'model'>
  readonly connection: Connection
}

/** A backend of the session, and the session's connection to it. */
export interface BackendBinding extends Target {
  readonly backend: Backend
}

/** Whoever opened a task and must know how it ended, before anybody else does. */
export interface TaskOwner {
  /** Called once, when the task has ended. Must not throw. */
  ended(outcome: Outcome): void
}

/** Somebody who waits for a task's end. One of the two is called, once. */
export interface EndListener {
  ended(): void
  /** The task was not submitted after all. */
  withdrawn(error: unknown): void
}

/** What is known of a task when it is opened. */
export interface Opening {
  /** Binary path, function name or model name; what really runs may be known only later. */
  readonly executable: string
  /** The uids of the tasks that it waits for; only TaskCreated names them. */
  readonly dependencies?: readonly string[]
  /** In the attributes of all its events. */
  readonly workflowId?: string | null
  readonly owner?: TaskOwner | null
}

/** How a task ends that no backend had. */
export type UndispatchedEnd = Exclude<TaskReport, { readonly kind: 'start' }>

const noDependencies: readonly string[] = Object.freeze([])

export class Entry implements Indexed, TaskHolder {
  setIndex = -1
  readonly ledger: object
  readonly task: Task
  readonly record: TaskRecord
  life: Life
  /** `null` while it is not known what runs. */
  work: Work | null = null
  backend = ''
  connection: Connection | null = null
  /** The backend has its job, so that only the backend can end it. */
  isWithBackend = false
  /** The current attempt; reports of any other are late. `null` before the first. */
  job: Job | null = null
  attempt = 1
  workersLost = 0
  workerId: string | null = null
  nodeId: string | null = null
  /** Binary path, function name or model name; a model may be known only after routing. */
  executable: string
  dependencies: readonly string[] = noDependencies
  workflowId: string | null = null
  owner: TaskOwner | null = null
  /** The attributes that all its events share; created on first use. */
  attributes: JsonObject | null = null
  /** Telemetry has seen TaskStarted; false if it began while the task was running. */
  isStartEmitted = false
  /** Set once somebody asked for its cancellation. */
  cancelReason: string | null = null
  endListeners: Set<EndListener> | null = null

  constructor(ledger: object, task: Task, record: TaskRecord, life: Life) {
    this.ledger = ledger
    this.task = task
    this.record = record
    this.life = life
    this.executable = ''
  }

  open({ executable, dependencies, workflowId, owner }: Opening, life: Life): void {
    this.life = life
    this.executable = executable
    this.dependencies = dependencies ?? noDependencies
    this.workflowId = workflowId ?? null
    this.owner = owner ?? null
  }
}

/** What all jobs of a session have in common. */
export interface AttemptSession {
  readonly sessionId: string
  readonly workDir: string | null
}

/** One attempt at the entry's task. */
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
    if (work === null || work.spec.kind !== 'closure') return null
    const body = work.function as ((...args: readonly unknown[]) => unknown) | null | undefined
    return body === null || body === undefined ? null : () => body(...(work.args ?? []))
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
