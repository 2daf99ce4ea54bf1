/** The ledger's data about a task that has not ended, and about its attempts. */

import type { Backend, Connection, ContinuedAttempt, Job, TaskReport } from '../backends/backend.ts'
import { TaggedJob } from '../backends/job-tag.ts'
import type { RowHolder } from '../events/sink.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Indexed } from '../runtime/indexed-set.ts'
import type { AnyFunction } from '../tasks/define-task.ts'
import type { HasDeadline } from '../runtime/deadlines.ts'
import type { QueueEntry } from '../runtime/priority-queue.ts'
import type { Lifecycle } from '../tasks/lifecycle.ts'
import { definitionHash, hasChangedSince } from '../tasks/definition-hash.ts'
import { withWorkDir, type TaskSpec } from '../tasks/spec.ts'
import type { LimitedAttempt } from './limits/name-limits.ts'
import type { RecordedPlan, RecordedTask, TaskInputs, TaskOrigin } from './resume/recorded-tasks.ts'
import type { Outcome, TaskHolder, TaskRecord } from '../tasks/task-record.ts'
import type { Task } from '../tasks/task.ts'

/** The work of a task: a `ComputeTask` or `AITask` itself, or work that a workflow prepared. */
export interface Work {
  readonly spec: TaskSpec
  readonly backend: string | null
  /** The function of a closure, which a spec cannot hold. */
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
}

/** The destination of a job. Blocks of a workflow use a target that is not a complete backend. */
export interface Target {
  readonly backend: Pick<Backend, 'name' | 'model'>
  readonly connection: Connection
}

export interface BackendBinding extends Target {
  readonly backend: Backend
}

/** The creator of a task, which is notified of the outcome before all other listeners. */
export interface TaskOwner {
  readonly blockUid: string | null
  /** Called once, when the task has ended. Must not throw. */
  ended(outcome: Outcome): void
  /** Whether the task's arguments differ from those that were hashed. Must not throw. */
  hasChanged(): boolean
}

/** Notified when a task ends. Exactly one of the two methods is called, once. */
export interface EndListener {
  ended(): void
  withdrawn(error: unknown): void
}

export interface OpenTaskOptions {
  /** Binary path, function name or model name. May be replaced when the work is known. */
  readonly executable: string
  readonly dependencies?: readonly string[]
  readonly workflowId?: string | null
  /** The display name; empty if `executable` is used. */
  readonly name?: string
  /** Computes the hash before the work is known. Called only if the hash is needed. */
  readonly definitionHash?: () => string | null
  /** Returns the tasks whose values the task receives. Called only in a resumed run. */
  readonly inputs?: () => TaskInputs
  /** In a resumed run: finds the task in the record. Called before TaskCreated. */
  readonly plan?: (entry: Entry) => void
  /**
   * Where the task is expected to run. The backend appears in the events of a task that ends before
   * it is dispatched.
   */
  readonly expected?: ExpectedRoute
  readonly owner?: TaskOwner | null
}

/** The expected work and target of a task, to route it before its actual work is known. */
export interface ExpectedRoute {
  readonly work: Work
  readonly target: Target | null
}

/** The outcome of a task that was never dispatched to a backend. */
export type UndispatchedOutcome =
  | Exclude<TaskReport, { readonly kind: 'start' | 'complete' }>
  /** The task completes with the result of an earlier or identical task. */
  | {
      readonly kind: 'reuse'
      readonly value: unknown
      /** Whether the value is already stored with the record of an earlier run. */
      readonly isRecorded?: boolean
    }

/** A task whose attempt failed and whose next attempt has not begun. */
export class WaitingRetry implements HasDeadline {
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null
  readonly entry: Entry
  /** When the next attempt begins, in wall-clock seconds. */
  readonly at: number

  constructor(entry: Entry, at: number) {
    this.entry = entry
    this.at = at
  }
}

const noDependencies: readonly string[] = Object.freeze([])
const noListeners: readonly EndListener[] = Object.freeze([])

export class Entry implements Indexed, TaskHolder, RowHolder {
  setIndex = -1
  telemetryRow: object | null = null
  readonly ledger: object
  readonly task: Task
  readonly record: TaskRecord
  lifecycle: Lifecycle
  /** Set if the task was opened before its work was known, by `Ledger.defer`; otherwise `null`. */
  #opening: OpenTaskOptions | null = null
  work: Work | null = null
  connection: Connection | null = null
  /** Whether the job was handed to the backend, so that cancellation must go through it. */
  isWithBackend = false
  /** The current attempt; `null` before the first. Reports about other attempts are ignored. */
  job: Job | null = null
  attempt = 1
  /**
   * The attempt from which retries are counted. Above 1 if attempts of an earlier run are ignored.
   */
  firstAttempt = 1
  retry: WaitingRetry | null = null
  workersLost = 0
  limitedAttempt: LimitedAttempt<Entry> | null = null
  workerId: string | null = null
  nodeId: string | null = null
  #executable = ''
  /** The task of the resumed record that this task is or continues; `null` for a new task. */
  recorded: RecordedTask | null = null
  /** Whether the task gets the outcome of `recorded`, continues its attempt, or gets nothing. */
  reuse: RecordedPlan['reuse'] = 'nothing'
  origin: TaskOrigin | null = null
  /** Whether the arguments have changed since they were hashed. If so, the value is not stored. */
  hasChanged = false
  #definitionHash: string | null | undefined
  attributes: JsonObject | null = null
  /** Whether TaskStarted was emitted; `false` if telemetry started while the task was running. */
  isStartEmitted = false
  cancelReason: string | null = null
  #endListeners: EndListener[] | null = null

  constructor(ledger: object, task: Task, record: TaskRecord, lifecycle: Lifecycle) {
    this.ledger = ledger
    this.task = task
    this.record = record
    this.lifecycle = lifecycle
  }

  get executable(): string {
    return this.#executable
  }

  set executable(name: string) {
    if (name === this.#executable) return
    this.#executable = name
    this.attributes = null
  }

  /** The assigned backend; empty before the assignment. */
  get backend(): string {
    return this.record.backend ?? ''
  }

  /** The display name; empty if `executable` is used. */
  get name(): string {
    return this.#opening === null ? this.task.name : (this.#opening.name ?? '')
  }

  get label(): string {
    return this.name || this.executable
  }

  get dependencies(): readonly string[] {
    return this.#opening?.dependencies ?? noDependencies
  }

  get workflowId(): string | null {
    return this.#opening?.workflowId ?? null
  }

  get expected(): ExpectedRoute | null {
    return this.#opening?.expected ?? null
  }

  get owner(): TaskOwner | null {
    return this.#opening?.owner ?? null
  }

  get retryAt(): number | null {
    return this.retry?.at ?? null
  }

  /** The hash of the definition; `null` if the input cannot be compared. Computed on first use. */
  get definitionHash(): string | null {
    if (this.#definitionHash === undefined) {
      const ownHash = this.#opening?.definitionHash
      if (ownHash !== undefined) this.#definitionHash = ownHash()
      else this.#definitionHash = this.work === null ? null : definitionHash(this.work, this.ledger)
    }
    return this.#definitionHash
  }

  /**
   * Sets `hasChanged` if the arguments differ from the hashed ones. Called when an attempt begins.
   * Skips programs and prompts, because their input cannot change.
   */
  detectInputChange(): void {
    const { work, owner, definitionHash: hash } = this
    if (this.hasChanged || work === null || hash === null) return
    if (work.spec.kind === 'program' || work.spec.kind === 'prompt') return
    this.hasChanged = owner?.hasChanged() ?? hasChangedSince(work, hash, this.ledger)
  }

  /** Continues the attempt numbers of an earlier run, whose attempts the backend still has. */
  continueFrom({ number, uncounted }: ContinuedAttempt): void {
    if (!(number > this.attempt)) return
    this.attempt = number
    this.firstAttempt += uncounted
  }

  /** Opens the task before its work is known. */
  open(opening: OpenTaskOptions): void {
    this.#opening = opening
    this.executable = opening.executable
    opening.plan?.(this)
  }

  addEndListener(listener: EndListener): void {
    if (this.#endListeners === null) this.#endListeners = [listener]
    else this.#endListeners.push(listener)
  }

  removeEndListener(listener: EndListener): void {
    const at = this.#endListeners?.indexOf(listener) ?? -1
    if (at !== -1) this.#endListeners?.splice(at, 1)
  }

  /** Returns the listeners and forgets them, because each is called at most once. */
  takeEndListeners(): readonly EndListener[] {
    const listeners = this.#endListeners ?? noListeners
    this.#endListeners = null
    return listeners
  }
}

export interface AttemptSession {
  /** The id of the session, which may change until the first job is created. */
  sessionId: string
  readonly workDir: string | null
}

export class Attempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt: number
  readonly isRetry: boolean
  readonly spec: TaskSpec
  readonly #entry: Entry

  /** The entry of a job; `null` if the job was not created by a ledger. */
  static findEntry(job: Job): Entry | null {
    return #entry in job ? job.#entry : null
  }

  static findClosure(job: Job): (() => unknown) | null {
    const work = Attempt.findEntry(job)?.work ?? null
    if (work === null || work.spec.kind !== 'closure') return null
    const body = work.function as ((...args: readonly unknown[]) => unknown) | null | undefined
    return body === null || body === undefined ? null : () => body(...(work.args ?? []))
  }

  constructor(entry: Entry, spec: TaskSpec, attempt: number, session: AttemptSession) {
    super()
    this.sessionId = session.sessionId
    this.uid = entry.task.uid
    this.attempt = attempt
    // The first job of a resumed task is no retry, although its attempt may be above 1.
    this.isRetry = entry.job !== null
    this.spec = withWorkDir(spec, session.workDir)
    this.#entry = entry
  }
}
