/** What the ledger knows about a task that has not ended, and about its attempts. */

import type { Backend, Connection, ContinuedAttempt, Job, TaskReport } from '../backends/backend.ts'
import { TaggedJob } from '../backends/job-tag.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Indexed } from '../runtime/indexed-set.ts'
import type { AnyFunction } from '../tasks/compute-options.ts'
import type { HasDeadline } from '../runtime/deadlines.ts'
import type { QueueEntry } from '../runtime/priority-queue.ts'
import type { Life } from '../tasks/lifecycle.ts'
import { definitionHash, hasChangedSince } from '../tasks/definition-hash.ts'
import { inWorkDir, type TaskSpec } from '../tasks/spec.ts'
import type { LimitedAttempt } from './limits/name-limits.ts'
import type { Outcome, TaskHolder, TaskRecord } from '../tasks/task-record.ts'
import type { Task } from '../tasks/task.ts'

/** What runs for a task: a `ComputeTask` or `AITask` itself, or work that a workflow prepared. */
export interface Work {
  readonly spec: TaskSpec
  /** The backend that the task names. */
  readonly backend: string | null
  /** The function of a closure, which a spec cannot hold. */
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
}

/** Where a job is submitted. Blocks of a workflow use a target that is not a complete backend. */
export interface Target {
  readonly backend: Pick<Backend, 'name' | 'model'>
  readonly connection: Connection
}

/** A backend of the session, and the session's connection to it. */
export interface BackendBinding extends Target {
  readonly backend: Backend
}

/** The opener of a task. It is notified of the outcome before all other listeners. */
export interface TaskOwner {
  /** The uid of the block that created the task, for TaskCreated; `null` without a block. */
  readonly blockUid: string | null
  /** Called once, when the task has ended. Must not throw. */
  ended(outcome: Outcome): void
  /** Whether the task's arguments differ from those that were hashed. Must not throw. */
  hasChanged(): boolean
}

/** Notified when a task ends. Exactly one of the two methods is called, once. */
export interface EndListener {
  ended(): void
  /** The task was not submitted after all. */
  withdrawn(error: unknown): void
}

/** What is known about a task when it is opened. */
export interface Opening {
  /** Binary path, function name or model name. May be replaced when the work is known. */
  readonly executable: string
  /** The uids of the tasks that this task waits for, recorded in TaskCreated. */
  readonly dependencies?: readonly string[]
  /** Added to all events of the task. */
  readonly workflowId?: string | null
  /** The display name; empty if `executable` is used. */
  readonly name?: string
  /** Computes the hash before the work is known. Called only if the hash is needed. */
  readonly definitionHash?: () => string | null
  /** Called only in a resumed run. */
  readonly inputs?: () => TaskInputs
  /** In a resumed run: finds the task in the record. Called before TaskCreated. */
  readonly plan?: (entry: Entry) => void
  /** The events of a task that ends before it is dispatched name the backend of this route. */
  readonly expected?: ExpectedRoute
  readonly owner?: TaskOwner | null
}

/** The tasks whose values a task receives, as rows of the resumed record; 0 for a new task. */
export interface TaskInputs {
  readonly dependencies: readonly number[]
  /** The inputs of the enclosing blocks; `null` if one of these blocks has to run again. */
  readonly around: readonly number[] | null
}

/** A task in an earlier file of the run: its uid there, and how many files ago that was. */
export interface TaskOrigin {
  readonly uid: string
  readonly filesBack: number
}

/** Enough of a task to route it before its actual work is known. */
export interface ExpectedRoute {
  readonly work: Work
  /** Set if the target is fixed, so that routing does not choose it. */
  readonly target: Target | null
}

/** The outcome of a task that was never dispatched to a backend. */
export type UndispatchedEnd =
  | Exclude<TaskReport, { readonly kind: 'start' | 'complete' }>
  /** Completes with the result of an earlier or equal task. */
  | {
      readonly kind: 'reuse'
      readonly value: unknown
      /** The value is already stored with the record of an earlier run. */
      readonly isRecorded?: boolean
    }

/** A task whose attempt failed and whose next attempt has not begun. */
export class WaitingRetry implements HasDeadline {
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null
  readonly entry: Entry
  /** Wall-clock seconds. */
  readonly at: number

  constructor(entry: Entry, at: number) {
    this.entry = entry
    this.at = at
  }
}

const noDependencies: readonly string[] = Object.freeze([])

export class Entry implements Indexed, TaskHolder {
  setIndex = -1
  readonly ledger: object
  readonly task: Task
  readonly record: TaskRecord
  life: Life
  /** `null` until the work is known. */
  work: Work | null = null
  backend = ''
  connection: Connection | null = null
  /** Whether the job was handed to the backend, so that cancellation must go through it. */
  isWithBackend = false
  /** The current attempt; `null` before the first. Reports about other attempts are ignored. */
  job: Job | null = null
  attempt = 1
  /** Retries are counted from this attempt. Above 1 if attempts of an earlier run do not count. */
  firstAttempt = 1
  /** The wait for the next attempt; `null` if the task is not waiting for one. */
  retry: WaitingRetry | null = null
  workersLost = 0
  /** The attempt in `NameLimits`; `null` if the task's name has no limit. */
  limited: LimitedAttempt<Entry> | null = null
  workerId: string | null = null
  nodeId: string | null = null
  #executable = ''
  dependencies: readonly string[] = noDependencies
  workflowId: string | null = null
  name = ''
  expected: ExpectedRoute | null = null
  /** The plan from the resumed record, see `Resumption.plan`; 0 for none. */
  planned = 0
  origin: TaskOrigin | null = null
  /** The task's row in the resumed record; 0 if the task is new or may have changed. */
  row = 0
  /** Whether the arguments have changed since they were hashed, so that no value is kept. */
  hasChanged = false
  #hash: (() => string | null) | null = null
  #definitionHash: string | null | undefined
  owner: TaskOwner | null = null
  /** The attributes that all events of the task share; created on first use. */
  attributes: JsonObject | null = null
  /** Whether TaskStarted was emitted; `false` if telemetry started while the task was running. */
  isStartEmitted = false
  /** Set when a cancellation is requested. */
  cancelReason: string | null = null
  endListeners: Set<EndListener> | null = null

  constructor(ledger: object, task: Task, record: TaskRecord, life: Life) {
    this.ledger = ledger
    this.task = task
    this.record = record
    this.life = life
  }

  /** Binary path, function name or model name; a model may be known only after routing. */
  get executable(): string {
    return this.#executable
  }

  set executable(name: string) {
    if (name === this.#executable) return
    this.#executable = name
    this.attributes = null
  }

  /** The display name. */
  get label(): string {
    return this.name || this.executable
  }

  get retryAt(): number | null {
    return this.retry?.at ?? null
  }

  /**
   * The hash of the task's definition; `null` if its input cannot be compared. Computed on first
   * use.
   */
  get definitionHash(): string | null {
    if (this.#definitionHash === undefined) {
      const { work } = this
      const hash = this.#hash ?? (() => (work === null ? null : definitionHash(work, this.ledger)))
      this.#definitionHash = hash()
    }
    return this.#definitionHash
  }

  /**
   * Called when an attempt begins. A value that was computed from other arguments than the hashed
   * ones is not kept. Programs and prompts are skipped, because their input cannot change.
   */
  compareInput(): void {
    const { work, owner, definitionHash: hash } = this
    if (this.hasChanged || work === null || hash === null) return
    if (work.spec.kind === 'program' || work.spec.kind === 'prompt') return
    this.hasChanged = owner?.hasChanged() ?? hasChangedSince(work, hash, this.ledger)
  }

  /** Continues the numbering of a backend that has attempts of an earlier run of the session. */
  continueFrom({ number, uncounted }: ContinuedAttempt): void {
    if (!(number > this.attempt)) return
    this.attempt = number
    this.firstAttempt += uncounted
  }

  open(opening: Opening, life: Life): void {
    const { executable, dependencies, workflowId, name, expected, owner } = opening
    this.#hash = opening.definitionHash ?? null
    this.life = life
    this.expected = expected ?? null
    this.executable = executable
    this.dependencies = dependencies ?? noDependencies
    this.workflowId = workflowId ?? null
    this.name = name ?? ''
    this.owner = owner ?? null
    opening.plan?.(this)
  }
}

/** The properties that all jobs of a session share. */
export interface AttemptSession {
  /** May change until the first job is created. */
  sessionId: string
  readonly workDir: string | null
}

/** One attempt of the entry's task. */
export class Attempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt: number
  readonly isRetry: boolean
  readonly spec: TaskSpec
  readonly #entry: Entry

  /** `null` for a job that no ledger created. */
  static entryOf(job: Job): Entry | null {
    return #entry in job ? job.#entry : null
  }

  /** A function that calls the job's closure with its arguments; `null` for any other job. */
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
    this.isRetry = attempt > entry.firstAttempt
    this.spec = inWorkDir(spec, session.workDir)
    this.#entry = entry
  }
}
