/** What the ledger knows of a task that has not ended, and of the attempts at it. */

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
  /** The uid of the block that made the task; only TaskCreated names it. `null` without one. */
  readonly blockUid: string | null
  /** Called once, when the task has ended. Must not throw. */
  ended(outcome: Outcome): void
  /** Whether its arguments are no longer those that its hash was made of. Must not throw. */
  hasChanged(): boolean
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
  /** What a person calls it, where `executable` does not tell it; in the attributes as well. */
  readonly name?: string | null
  /** What it is, if that is known before what runs; asked for only when somebody records it. */
  readonly definitionHash?: () => string | null
  /** Asked for only in a run that continues another. */
  readonly inputs?: () => TaskInputs
  /** In a run that continues another: finds what that has of the task, before TaskCreated. */
  readonly plan?: (entry: Entry) => void
  /** Where it will probably go: a task that ends before it is dispatched names that backend. */
  readonly expected?: ExpectedRoute
  readonly owner?: TaskOwner | null
}

/** The tasks whose values a task gets, by what the resumed record has of them: 0 for nothing. */
export interface TaskInputs {
  readonly dependencies: readonly number[]
  /** Those of the blocks around it; `null` if one of these has to run again. */
  readonly around: readonly number[] | null
}

/** A task of an earlier file of the run: the uid that it had first, and how many files ago. */
export interface TaskOrigin {
  readonly uid: string
  readonly filesBack: number
}

/** What routing can be asked about a task before it is known what runs. */
export interface ExpectedRoute {
  readonly work: Work
  /** Not for routing to decide, if it is not `null`. */
  readonly target: Target | null
}

/** How a task ends that no backend had. */
export type UndispatchedEnd =
  | Exclude<TaskReport, { readonly kind: 'start' | 'complete' }>
  /** Only a result that an earlier or equal task had can be one without running. */
  | {
      readonly kind: 'reuse'
      readonly value: unknown
      /** It is kept beside the record of an earlier run. */
      readonly isRecorded?: boolean
    }

/** A task whose attempt failed and whose next one has not begun. */
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
  /** `null` while it is not known what runs. */
  work: Work | null = null
  backend = ''
  connection: Connection | null = null
  /** The backend has its job, so that only the backend can end it. */
  isWithBackend = false
  /** The current attempt; reports of any other are late. `null` before the first. */
  job: Job | null = null
  attempt = 1
  /** Higher than 1 if attempts of an earlier run do not count: retries are counted from here. */
  firstAttempt = 1
  /** The wait for the next attempt; `null` while there is none. */
  retry: WaitingRetry | null = null
  workersLost = 0
  workerId: string | null = null
  nodeId: string | null = null
  /** Binary path, function name or model name; a model may be known only after routing. */
  executable: string
  dependencies: readonly string[] = noDependencies
  workflowId: string | null = null
  name: string | null = null
  expected: ExpectedRoute | null = null
  /** What the resumed record has of it: 0 for nothing. */
  planned = 0
  origin: TaskOrigin | null = null
  /** The task of the resumed record that it is; 0 if it is made here, or may be another one. */
  row = 0
  /** Its arguments are no longer those that its hash was made of: its value is not kept. */
  hasChanged = false
  #hash: (() => string | null) | null = null
  #definitionHash: string | null | undefined
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

  get retryAt(): number | null {
    return this.retry?.at ?? null
  }

  /** What the task is; `null` when its input has no comparable content. Computed on first use. */
  get definitionHash(): string | null {
    if (this.#definitionHash === undefined) {
      const { work } = this
      const hash = this.#hash ?? (() => (work === null ? null : definitionHash(work, this.ledger)))
      this.#definitionHash = hash()
    }
    return this.#definitionHash
  }

  /**
   * An attempt begins: a value that is made from other arguments than the hash is not kept. What a
   * program or prompt is was decided before.
   */
  compareInput(): void {
    const { work, owner, definitionHash: hash } = this
    if (this.hasChanged || work === null || hash === null) return
    if (work.spec.kind === 'program' || work.spec.kind === 'prompt') return
    this.hasChanged = owner?.hasChanged() ?? hasChangedSince(work, hash, this.ledger)
  }

  /** Its backend knows of attempts by an earlier start of the session. */
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
    this.name = name ?? null
    this.owner = owner ?? null
    opening.plan?.(this)
  }
}

/** What all jobs of a session have in common. */
export interface AttemptSession {
  /** Changes only before the first of them. */
  sessionId: string
  readonly workDir: string | null
}

/** One attempt at the entry's task. */
export class Attempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt: number
  readonly isRetry: boolean
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
    this.isRetry = attempt > entry.firstAttempt
    this.spec = inWorkDir(spec, session.workDir)
    this.#entry = entry
  }
}
