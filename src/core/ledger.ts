/** The only writer of task state: every change goes through `advance` and causes one event. */

import type { AnyTask, AttemptFacts, Connection, Job, TaskReport } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { BackendError, messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { AbortRegistry, abortReason } from '../runtime/abort-registry.ts'
import { Deadlines } from '../runtime/deadlines.ts'
import { IndexedSet } from '../runtime/indexed-set.ts'
import { advance, hasEnded, type Moment, newLife, type Stimulus } from '../tasks/lifecycle.ts'
import { claimFor, type Outcome, recordFor, type TaskHolder } from '../tasks/task-record.ts'
import { notSubmitted, type Task } from '../tasks/task.ts'
import {
  Attempt,
  type AttemptSession,
  Entry,
  type Opening,
  type Target,
  type UndispatchedEnd,
  WaitingRetry,
  type Work,
} from './entry.ts'
import { expectReport, factsOf, isPoisonous, isWorkerLoss, outputOf } from './failure.ts'
import { type FailReport, toCancelError, toPoisonError, toTaskError } from './failure.ts'
import { type LimitedAttempt, type NameLimitOptions, NameLimits } from './limits/name-limits.ts'
import { type Ending, GuardedEmitter } from './lifecycle-emitter.ts'
import { decideNext } from './retry-policy.ts'
import { UidRegister } from './uid-register.ts'

export interface LedgerParts extends AttemptSession {
  readonly clock: Clock
  readonly log: Log
  /** The backend that routing would choose for a task that ends undispatched, or `null`. */
  readonly expectedBackend: (entry: Entry) => Target['backend'] | null
  readonly limits: NameLimitOptions | null
  /** Called when a task has ended, which makes room for another. */
  readonly onEnded: () => void
  /** Called for each attempt that a backend reports as ended, even if it will be retried. */
  readonly onAttemptEnded: (connection: Connection, job: Job) => void
}

type ReuseEnd = Extract<UndispatchedEnd, { readonly kind: 'reuse' }>
const noEnding: Ending = Object.freeze({})
export class Ledger implements TaskHolder {
  readonly emitter: GuardedEmitter
  readonly #parts: LedgerParts
  readonly #uids = new UidRegister()
  readonly #open = new IndexedSet<Entry>()
  readonly #signals = new AbortRegistry<Task>((task) => this.#watchSignal(task))
  readonly #retries: Deadlines<WaitingRetry>
  /** `null` if no name has a limit. */
  readonly #limits: NameLimits<Entry> | null
  #lateReports = 0
  /** Set when the session closes. From then on, every task ends CANCELED. */
  #closeReason: string | null = null

  constructor(parts: LedgerParts) {
    this.#parts = parts
    this.emitter = new GuardedEmitter(parts.log)
    this.#retries = new Deadlines(parts.clock, ({ entry }) => this.#beginRetry(entry))
    const { limits, clock } = parts
    this.#limits =
      limits === null ? null : new NameLimits(limits, clock, (entry) => this.#beginLimited(entry))
  }

  /** Whether a task was ever submitted. */
  get isUsed(): boolean {
    return !this.#uids.isEmpty
  }

  /** Sets the session's id, which a resume determines. Only before the first submission. */
  rename(sessionId: string): void {
    this.#parts.sessionId = sessionId
  }

  /** The ledger itself is the `TaskHolder` of tasks that are claimed but not opened. */
  get ledger(): this {
    return this
  }

  /** The number of tasks that have not ended. */
  get openTasks(): number {
    return this.#open.size
  }

  /** The number of reports that arrived after the end of their attempt and were ignored. */
  get lateReports(): number {
    return this.#lateReports
  }

  /** Reserves a task and its uid, so that the task can be awaited. `false` if either is taken. */
  claim(task: Task): boolean {
    if (!this.#uids.claim(task.uid)) return false
    if (task[claimFor](this) !== null) return true
    this.#uids.release(task.uid)
    return false
  }

  /** Withdraws the claim of a task that was not opened, so that the task can be submitted again. */
  withdraw(task: Task, cause: unknown): void {
    const record = task[recordFor](this)
    if (record === null) return
    const error = notSubmitted(task.uid, 'was not submitted', cause)
    const listeners = record.holder instanceof Entry ? record.holder.endListeners : null
    this.#uids.release(task.uid)
    record.withdraw(error)
    for (const listener of listeners ?? []) listener.withdrawn(error)
  }

  /** The entry of a claimed or open task of this session. */
  find(task: Task): Entry | undefined {
    const record = task[recordFor](this)
    if (record === null) return undefined
    if (record.holder instanceof Entry) return record.holder
    // A claimed task that is canceled or awaited before it is opened gets its entry here.
    const entry = new Entry(this, task, record, newLife(this.#now()))
    record.holder = entry
    return entry
  }

  /** Searches all open tasks, so call it rarely. */
  findOpen(uid: string): Entry | null {
    return this.#open.toArray().find(({ task }) => task.uid === uid) ?? null
  }

  /** Opens a claimed task: CREATED, SUBMITTED and QUEUED. `submit` hands it to its backend. */
  open(task: AnyTask, target: Target): Entry {
    const { name, spec } = task
    const entry = this.#create(task, { executable: spec.executable, name }, task)
    this.#assign(entry, target)
    return entry
  }

  /** Opens a claimed task whose work is not known yet: CREATED. */
  defer(task: Task, opening: Opening): Entry {
    return this.#create(task, opening, null)
  }

  /** Gives a deferred task its work and its target: SUBMITTED and QUEUED, as `open` does. */
  dispatch(entry: Entry, work: Work, target: Target): void {
    this.#setWork(entry, work)
    this.#assign(entry, target)
  }

  /** Hands over queued tasks that were not canceled meanwhile, in one batch per backend. */
  submit(entries: readonly Entry[]): void {
    const batches = new Map<Connection, Job[]>()
    const limited = new Map<object, LimitedAttempt<Entry>>()
    for (const entry of entries) {
      const held = this.#holdBack(entry, false)
      if (held !== null) {
        limited.set(held.group, held)
        continue
      }
      const { connection, job } = entry
      if (entry.life.state !== 'QUEUED' || job === null || connection === null) continue
      entry.isWithBackend = true
      const batch = batches.get(connection)
      if (batch === undefined) batches.set(connection, [job])
      else batch.push(job)
    }
    // Only after all tasks of the list were added, because they begin in order of priority.
    for (const attempt of limited.values()) this.#limits?.advance(attempt)
    for (const [connection, jobs] of batches) this.#handOver(connection, jobs)
  }

  /**
   * Ends a deferred task that was not dispatched; ignores other tasks. Emits TaskSubmitted first,
   * which must precede the terminal event, and calls `between` between these two events.
   */
  end(entry: Entry, end: UndispatchedEnd, between: () => void = () => {}): void {
    if (entry.job !== null || hasEnded(entry.life.state)) return
    const now = this.#now()
    this.#setBackend(entry, this.#parts.expectedBackend(entry) ?? { name: '' })
    this.#apply(entry, 'submit', now)
    between()
    if (end.kind === 'fail') this.#endFailed(entry, now, end)
    else if (end.kind === 'cancel') this.#cancel(entry, now, end.reason)
    else this.#reuse(entry, now, end)
  }

  #reuse(entry: Entry, now: Moment, { value, isRecorded = false }: ReuseEnd): void {
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) this.#cancel(entry, now, reason)
    else this.#complete(entry, now, { value, isReused: true, isRecorded })
  }

  /** Processes a backend's report. */
  record(job: Job, report: TaskReport): void {
    const entry = Attempt.entryOf(job)
    const isOpen = entry !== null && this.#open.has(entry) && !hasEnded(entry.life.state)
    if (!isOpen || entry.job !== job) return this.#countLate(report.kind)
    expectReport(report)
    if (report.continued !== undefined) entry.continueFrom(report.continued)
    // Called before processing the report, which may already begin and end the next attempt.
    if (report.kind !== 'start' && entry.connection !== null) {
      this.#parts.onAttemptEnded(entry.connection, job)
    }
    this.#take(entry, report.at ?? this.#now(), report)
  }

  /**
   * Requests a task's cancellation; `false` if it was already requested or the task has ended.
   * `true` guarantees that the task ends CANCELED, whatever its backend reports.
   */
  requestCancel(task: Task, reason: string): boolean {
    const entry = this.find(task)
    if (entry === undefined || entry.cancelReason !== null) return false
    if (hasEnded(entry.life.state)) return false
    entry.cancelReason = reason
    if (entry.isWithBackend && entry.job !== null) this.#askToCancel(entry, entry.job, reason)
    else if (entry.life.state !== 'CREATED') this.#cancel(entry, this.#now(), reason)
    else if (this.#open.has(entry)) this.end(entry, { kind: 'cancel', reason })
    // A task that is not open yet is canceled when it is opened, after TaskSubmitted.
    return true
  }

  /** From now on, every task ends CANCELED. Tasks that no backend holds end immediately. */
  beginClosing(reason: string): void {
    this.#closeReason = reason
    for (const entry of this.#open.toArray()) {
      if (entry.job === null) this.end(entry, { kind: 'cancel', reason })
      else if (!entry.isWithBackend) this.#cancel(entry, this.#now(), reason)
    }
  }

  /** Cancels the tasks that are still open because their backend did not end them. */
  cancelRest(reason: string): void {
    for (const entry of this.#open.toArray()) {
      if (entry.job === null) this.end(entry, { kind: 'cancel', reason })
      else this.#cancel(entry, this.#now(), reason)
    }
  }

  #create(task: Task, opening: Opening, work: Work | null): Entry {
    const record = task[recordFor](this)
    if (record === null) throw new TypeError(`${task.uid} was not claimed`)
    const moment = this.#now()
    const life = newLife(moment)
    const reserved = record.holder instanceof Entry ? record.holder : null
    const entry = reserved ?? new Entry(this, task, record, life)
    record.holder = entry
    entry.open(opening, life)
    if (work !== null) this.#setWork(entry, work)
    this.#open.add(entry)
    this.emitter.created(entry, moment.wallSeconds)
    if (task.signal !== null) this.#watchSignal(task)
    return entry
  }

  #setWork(entry: Entry, work: Work): void {
    entry.work = work
    entry.job = new Attempt(entry, work.spec, entry.attempt, this.#parts)
    if (work.spec.kind === 'program' || work.spec.kind === 'prompt') {
      entry.executable = work.spec.executable
    }
  }

  #setBackend(entry: Entry, { name, model }: Target['backend']): void {
    entry.backend = name
    if (name !== '') entry.record.backend = name
    if (entry.task.kind === 'ai') entry.executable ||= model ?? ''
  }

  #assign(entry: Entry, { backend, connection }: Target): void {
    this.#setBackend(entry, backend)
    entry.connection = connection
    const now = this.#now()
    this.#apply(entry, 'submit', now)
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) this.#cancel(entry, now, reason)
    // A task that must wait for the limit of its name has not reached its backend's queue yet.
    else if (this.#limits?.has(entry.label) !== true) this.#apply(entry, 'queue', this.#now())
  }

  /** Cancels the task immediately if its signal is already aborted. */
  #watchSignal(task: Task): void {
    const { signal } = task
    if (signal?.aborted === true) this.requestCancel(task, abortReason(signal))
    else if (signal !== null) this.#signals.watch(signal, task)
  }

  #take(entry: Entry, moment: Moment, report: TaskReport): void {
    if (report.kind === 'start') return this.#start(entry, moment, report)
    const { facts } = report
    if (facts?.workerId !== undefined) entry.workerId = facts.workerId
    if (report.kind === 'cancel') return this.#cancel(entry, moment, report.reason, facts)
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) {
      this.emitter.lateResult()
      return this.#cancel(entry, moment, reason, factsOf(report))
    }
    if (report.kind === 'fail') return this.#fail(entry, moment, report)
    const { value } = report
    this.#complete(entry, moment, facts === undefined ? { value } : { value, facts })
  }

  #countLate(kind: TaskReport['kind']): void {
    this.#lateReports++
    if (kind === 'complete' || kind === 'fail') this.emitter.lateResult()
  }

  #start(entry: Entry, moment: Moment, report: TaskReport & { kind: 'start' }): void {
    const isRunning = entry.life.state === 'RUNNING' && !entry.life.isBetweenAttempts
    if (isRunning) return this.#countLate('start')
    entry.workerId = report.workerId
    entry.nodeId = report.nodeId
    entry.retry = null
    if (entry.limited !== null) this.#limits?.start(entry.limited)
    this.#apply(entry, 'start', moment, report)
  }

  #complete(entry: Entry, moment: Moment, ending: Ending & { readonly value: unknown }): void {
    if (!this.#apply(entry, 'complete', moment, ending)) return
    this.#end(entry, { state: 'DONE', value: ending.value, facts: ending.facts })
  }

  #fail(entry: Entry, moment: Moment, report: FailReport): void {
    const { error, facts, isFinal } = report
    if (isWorkerLoss(report)) entry.workersLost++
    const isPoison = isPoisonous(entry.workersLost)
    const mayGoOn = !isPoison && isFinal !== true
    const decision = mayGoOn ? decideNext(entry, error, this.#parts.log) : null
    if (decision?.kind === 'retry' && entry.work !== null) {
      return this.#retry(entry, entry.work, moment, { error, delaySeconds: decision.delaySeconds })
    }
    const cause = isPoison ? toPoisonError(entry.workersLost, error) : error
    this.#endFailed(entry, moment, facts === undefined ? { error: cause } : { error: cause, facts })
  }

  #endFailed(entry: Entry, moment: Moment, ending: Ending): void {
    if (!this.#apply(entry, 'fail', moment, ending)) return
    const error = toTaskError(entry.task, ending.error)
    this.#end(entry, { state: 'FAILED', error, ...outputOf(ending.facts, error) })
  }

  /** Schedules the next attempt. The task holds no slot while it waits. */
  #retry(
    entry: Entry,
    work: Work,
    moment: Moment,
    { error, delaySeconds }: { readonly error: unknown; readonly delaySeconds: number },
  ): void {
    // Replaced before the event, so that a second report of the failed attempt is ignored.
    entry.job = new Attempt(entry, work.spec, entry.attempt + 1, this.#parts)
    entry.isWithBackend = false
    const retry = new WaitingRetry(entry, moment.wallSeconds + delaySeconds)
    entry.retry = retry
    this.#apply(entry, 'retry', moment, { error })
    // A subscriber of that event may have canceled the task.
    if (hasEnded(entry.life.state)) return
    entry.attempt++
    entry.workerId = null
    const { limited } = entry
    entry.limited = null
    if (delaySeconds === 0) this.#beginRetry(entry)
    else this.#retries.set(retry, moment.monotonicMs + delaySeconds * 1000)
    // Only after the retry was added, because it precedes new tasks of the same priority.
    if (limited !== null) this.#endLimited(limited, false)
  }

  #beginRetry(entry: Entry): void {
    const held = this.#holdBack(entry, true)
    if (held !== null) {
      this.#limits?.advance(held)
      return
    }
    this.#handOverOne(entry)
  }

  /** Queues the attempt if the task's name has a limit; otherwise returns `null`. */
  #holdBack(entry: Entry, isRetry: boolean): LimitedAttempt<Entry> | null {
    if (this.#limits === null || hasEnded(entry.life.state)) return null
    const about = { item: entry, priority: entry.task.priority, isRetry }
    entry.limited = this.#limits.add(entry.label, about)
    return entry.limited
  }

  #beginLimited(entry: Entry): void {
    if (entry.life.state === 'SUBMITTED') this.#apply(entry, 'queue', this.#now())
    this.#handOverOne(entry)
  }

  #handOverOne(entry: Entry): void {
    const { connection, job } = entry
    if (connection === null || job === null) return
    entry.isWithBackend = true
    this.#handOver(connection, [job])
  }

  /** If a backend's `submit` throws, the jobs fail and are not retried. */
  #handOver(connection: Connection, jobs: readonly Job[]): void {
    try {
      connection.submit(jobs)
    } catch (cause) {
      const text = `the backend failed to take the job: ${messageOf(cause)}`
      const error = new BackendError(text, { cause })
      for (const job of jobs) {
        const entry = Attempt.entryOf(job)
        if (entry?.job === job) this.#endFailed(entry, this.#now(), { error })
      }
    }
  }

  /** If the backend throws, it will not end the job, so the ledger cancels the task itself. */
  #askToCancel(entry: Entry, job: Job, reason: string): void {
    try {
      entry.connection?.cancel(job, reason)
    } catch {
      this.#cancel(entry, this.#now(), reason)
    }
  }

  #cancel(entry: Entry, moment: Moment, reason: string, facts?: AttemptFacts): void {
    const error = toCancelError(entry.task, entry.cancelReason ?? reason)
    const ending: Ending = facts === undefined ? { error } : { error, facts }
    if (!this.#apply(entry, 'cancel', moment, ending)) return
    this.#end(entry, { state: 'CANCELED', error, ...outputOf(facts, error) })
  }

  /** `false` if the stimulus came too late to change the state. */
  #apply(entry: Entry, stimulus: Stimulus, moment: Moment, ending = noEnding): boolean {
    const life = advance(entry.life, stimulus, moment)
    if (life === null) return false
    entry.life = life
    entry.record.state = life.state
    this.emitter.changed(entry, ending)
    return true
  }

  #end(entry: Entry, outcome: Outcome): void {
    const { task } = entry
    this.#open.delete(entry)
    if (entry.retry !== null) this.#retries.remove(entry.retry)
    entry.record.settle(outcome)
    if (task.signal !== null) this.#signals.forget(task.signal, task)
    this.#parts.onEnded()
    entry.owner?.ended(outcome)
    for (const listener of entry.endListeners ?? []) listener.ended()
    if (entry.limited !== null) this.#endLimited(entry.limited, outcome.state === 'DONE')
  }

  /** Counts a start for a completed attempt, because some backends do not report starts. */
  #endLimited(attempt: LimitedAttempt<Entry>, hasRun: boolean): void {
    if (hasRun) this.#limits?.start(attempt)
    this.#limits?.end(attempt)
  }

  #now(): Moment {
    const { clock } = this.#parts
    return { wallSeconds: clock.now(), monotonicMs: clock.monotonicMs() }
  }
}
