/** The only writer of task state: every change goes through `advance` and causes one event. */

import type { AnyTask, AttemptFacts, Connection, Job, TaskReport } from '../backends/backend.ts'
import { type Clock, readMoment } from '../foundation/clock.ts'
import { BackendError, messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { AbortRegistry, abortReason } from '../runtime/abort-registry.ts'
import { Deadlines } from '../runtime/deadlines.ts'
import { IndexedSet } from '../runtime/indexed-set.ts'
import { advance, hasEnded, type Moment, newLifecycle, type Stimulus } from '../tasks/lifecycle.ts'
import { claimRecord, type Outcome, findRecord, type TaskHolder } from '../tasks/task-record.ts'
import { notSubmittedError, type Task } from '../tasks/task.ts'
import {
  Attempt,
  type AttemptSession,
  Entry,
  type OpenTaskOptions,
  type Target,
  type UndispatchedOutcome,
  WaitingRetry,
  type Work,
} from './entry.ts'
import { expectReport, toAttemptFacts, isPoisonous, isWorkerLoss, findOutput } from './failure.ts'
import { type FailReport, toCancelError, toPoisonError, toTaskError } from './failure.ts'
import { type LimitedAttempt, type NameLimitOptions, NameLimits } from './limits/name-limits.ts'
import { type ChangeDetails, GuardedEmitter } from './lifecycle-emitter.ts'
import { decideNext } from './retry-policy.ts'
import { UidRegister } from './uid-register.ts'

export interface LedgerParts extends AttemptSession {
  readonly clock: Clock
  readonly log: Log
  readonly expectedBackend: (entry: Entry) => Target['backend'] | null
  readonly limits: NameLimitOptions | null
  readonly onEnded: () => void
  /** Called for each attempt that a backend reports as ended, even if it will be retried. */
  readonly onAttemptEnded: (connection: Connection, job: Job) => void
}

type ReuseOutcome = Extract<UndispatchedOutcome, { readonly kind: 'reuse' }>
const noDetails: ChangeDetails = Object.freeze({})
export class Ledger implements TaskHolder {
  readonly emitter: GuardedEmitter
  readonly #parts: LedgerParts
  readonly #uids = new UidRegister()
  readonly #open = new IndexedSet<Entry>()
  readonly #signals = new AbortRegistry<Task>((task) => this.#watchSignal(task))
  readonly #retries: Deadlines<WaitingRetry>
  readonly #limits: NameLimits<Entry> | null
  #lateReports = 0
  /**
   * The reason for closing the session; `null` until then. Once it is set, every task ends
   * CANCELED.
   */
  #closeReason: string | null = null

  constructor(parts: LedgerParts) {
    this.#parts = parts
    this.emitter = new GuardedEmitter(parts.log)
    this.#retries = new Deadlines(parts.clock, ({ entry }) => this.#beginRetry(entry))
    const { limits, clock } = parts
    this.#limits =
      limits === null ? null : new NameLimits(limits, clock, (entry) => this.#beginLimited(entry))
  }

  get hasTasks(): boolean {
    return !this.#uids.isEmpty
  }

  /**
   * Sets the session's id to that of a resumed record. Allowed only before the first submission.
   */
  rename(sessionId: string): void {
    this.#parts.sessionId = sessionId
  }

  /** The ledger itself is the `TaskHolder` of tasks that were claimed but not opened. */
  get ledger(): this {
    return this
  }

  get openTasks(): number {
    return this.#open.size
  }

  get lateReports(): number {
    return this.#lateReports
  }

  /**
   * Reserves a task and its uid, so that the task can be awaited. Returns `false` if either is
   * taken.
   */
  claim(task: Task): boolean {
    if (!this.#uids.claim(task.uid)) return false
    if (task[claimRecord](this) !== null) return true
    this.#uids.release(task.uid)
    return false
  }

  withdraw(task: Task, cause: unknown): void {
    const record = task[findRecord](this)
    if (record === null) return
    const error = notSubmittedError(task.uid, 'was not submitted', cause)
    const { holder } = record
    this.#uids.release(task.uid)
    record.withdraw(error)
    if (!(holder instanceof Entry)) return
    for (const listener of holder.takeEndListeners()) listener.withdrawn(error)
  }

  find(task: Task): Entry | undefined {
    const record = task[findRecord](this)
    if (record === null) return undefined
    if (record.holder instanceof Entry) return record.holder
    // A claimed task gets its entry here if it is canceled or awaited before it is opened.
    const entry = new Entry(this, task, record, newLifecycle(this.#now()))
    record.holder = entry
    return entry
  }

  /** Finds an open task by its uid. Searches all open tasks, so call it rarely. */
  findOpen(uid: string): Entry | null {
    return this.#open.toArray().find(({ task }) => task.uid === uid) ?? null
  }

  /** Opens a claimed task: it becomes CREATED, SUBMITTED and QUEUED. `submit` sends it later. */
  open(task: AnyTask, target: Target): Entry {
    const now = this.#now()
    const entry = this.#create(task, now)
    this.#setWork(entry, task)
    entry.executable = task.spec.executable
    this.#register(entry, now)
    this.#assign(entry, target, this.#nextMoment(now))
    return entry
  }

  /** Opens a claimed task whose work is not known yet. The task becomes CREATED. */
  defer(task: Task, opening: OpenTaskOptions): Entry {
    const now = this.#now()
    const entry = this.#create(task, now)
    entry.open(opening)
    this.#register(entry, now)
    return entry
  }

  /** Assigns work and a target to a deferred task, which becomes SUBMITTED and QUEUED. */
  dispatch(entry: Entry, work: Work, target: Target): void {
    this.#setWork(entry, work)
    this.#assign(entry, target, this.#now())
  }

  /**
   * Submits queued tasks in one batch per backend, except tasks that were canceled in the meantime.
   */
  submit(entries: readonly Entry[]): void {
    const batches = new Map<Connection, Job[]>()
    const limited = new Map<object, LimitedAttempt<Entry>>()
    for (const entry of entries) {
      const waitingAttempt = this.#queueLimited(entry, false)
      if (waitingAttempt !== null) {
        limited.set(waitingAttempt.group, waitingAttempt)
        continue
      }
      const { connection, job } = entry
      if (entry.lifecycle.state !== 'QUEUED' || job === null || connection === null) continue
      entry.isWithBackend = true
      const batch = batches.get(connection)
      if (batch === undefined) batches.set(connection, [job])
      else batch.push(job)
    }
    // Called after all tasks of the list were added, because tasks begin in order of priority.
    for (const attempt of limited.values()) this.#limits?.advance(attempt)
    for (const [connection, jobs] of batches) this.#handOver(connection, jobs)
  }

  /**
   * Ends a deferred task that was not dispatched; ignores other tasks. Emits TaskSubmitted before
   * the terminal event, and calls `between` between the two events.
   */
  end(entry: Entry, end: UndispatchedOutcome, between: () => void = () => {}): void {
    if (entry.job !== null || hasEnded(entry.lifecycle.state)) return
    const now = this.#now()
    this.#setBackend(entry, this.#parts.expectedBackend(entry) ?? { name: '' })
    this.#apply(entry, 'submit', now)
    between()
    if (end.kind === 'fail') this.#endFailed(entry, now, end)
    else if (end.kind === 'cancel') this.#cancel(entry, now, end.reason)
    else this.#reuse(entry, now, end)
  }

  #reuse(entry: Entry, now: Moment, { value, isRecorded = false }: ReuseOutcome): void {
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) this.#cancel(entry, now, reason)
    else this.#complete(entry, now, { value, isReused: true, isRecorded })
  }

  record(job: Job, report: TaskReport): void {
    const entry = Attempt.findEntry(job)
    const isOpen = entry !== null && this.#open.has(entry) && !hasEnded(entry.lifecycle.state)
    if (!isOpen || entry.job !== job) return this.#countLate(report.kind)
    expectReport(report)
    if (report.continued !== undefined) entry.continueFrom(report.continued)
    // Called first, because `#handleReport` may begin and even end the next attempt.
    if (report.kind !== 'start' && entry.connection !== null) {
      this.#parts.onAttemptEnded(entry.connection, job)
    }
    this.#handleReport(entry, report.at ?? this.#now(), report)
  }

  /**
   * Requests the cancellation of a task. Returns `true` if the task will end CANCELED, whatever its
   * backend reports. Returns `false` if this was already requested or the task has ended.
   */
  requestCancel(task: Task, reason: string): boolean {
    const entry = this.find(task)
    if (entry === undefined || entry.cancelReason !== null) return false
    if (hasEnded(entry.lifecycle.state)) return false
    entry.cancelReason = reason
    if (entry.isWithBackend && entry.job !== null) this.#cancelAtBackend(entry, entry.job, reason)
    else if (entry.lifecycle.state !== 'CREATED') this.#cancel(entry, this.#now(), reason)
    else if (this.#open.has(entry)) this.end(entry, { kind: 'cancel', reason })
    // A task that is not open yet is canceled when it is opened, after TaskSubmitted.
    return true
  }

  /**
   * Begins to close. From now on, every task ends CANCELED. Tasks that no backend holds end
   * immediately.
   */
  beginClosing(reason: string): void {
    this.#closeReason = reason
    this.cancelRest(reason, ({ isWithBackend }) => !isWithBackend)
  }

  cancelRest(reason: string, isWanted: (entry: Entry) => boolean = () => true): void {
    for (const entry of this.#open.toArray().filter(isWanted)) {
      if (entry.job === null) this.end(entry, { kind: 'cancel', reason })
      else this.#cancel(entry, this.#now(), reason)
    }
  }

  #create(task: Task, now: Moment): Entry {
    const record = task[findRecord](this)
    if (record === null) throw new TypeError(`${task.uid} was not claimed`)
    const { holder } = record
    if (holder instanceof Entry) {
      holder.lifecycle = newLifecycle(now)
      return holder
    }
    const entry = new Entry(this, task, record, newLifecycle(now))
    record.holder = entry
    return entry
  }

  #register(entry: Entry, now: Moment): void {
    const { task } = entry
    this.#open.add(entry)
    this.emitter.created(entry, now.wallSeconds)
    if (task.signal !== null) this.#watchSignal(task)
  }

  #setWork(entry: Entry, work: Work): void {
    entry.work = work
    entry.job = new Attempt(entry, work.spec, entry.attempt, this.#parts)
    if (work.spec.kind === 'program' || work.spec.kind === 'prompt') {
      entry.executable = work.spec.executable
    }
  }

  #setBackend(entry: Entry, { name, model }: Target['backend']): void {
    if (name !== '') entry.record.backend = name
    if (entry.task.kind === 'ai') entry.executable ||= model ?? ''
  }

  #assign(entry: Entry, { backend, connection }: Target, now: Moment): void {
    this.#setBackend(entry, backend)
    entry.connection = connection
    this.#apply(entry, 'submit', now)
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) this.#cancel(entry, now, reason)
    // A task that must wait for the limit of its name has not reached its backend's queue yet.
    else if (this.#limits?.has(entry.label) !== true)
      this.#apply(entry, 'queue', this.#nextMoment(now))
  }

  #watchSignal(task: Task): void {
    const { signal } = task
    if (signal?.aborted === true) this.requestCancel(task, abortReason(signal))
    else if (signal !== null) this.#signals.add(signal, task)
  }

  #handleReport(entry: Entry, moment: Moment, report: TaskReport): void {
    if (report.kind === 'start') return this.#start(entry, moment, report)
    const { facts } = report
    if (facts?.workerId !== undefined) entry.workerId = facts.workerId
    if (report.kind === 'cancel') return this.#cancel(entry, moment, report.reason, facts)
    const reason = entry.cancelReason ?? this.#closeReason
    if (reason !== null) {
      this.emitter.lateResult()
      return this.#cancel(entry, moment, reason, toAttemptFacts(report))
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
    const isRunning = entry.lifecycle.state === 'RUNNING' && !entry.lifecycle.isBetweenAttempts
    if (isRunning) return this.#countLate('start')
    entry.workerId = report.workerId
    entry.nodeId = report.nodeId
    entry.retry = null
    if (entry.limitedAttempt !== null) this.#limits?.start(entry.limitedAttempt)
    this.#apply(entry, 'start', moment, report)
  }

  #complete(
    entry: Entry,
    moment: Moment,
    details: ChangeDetails & { readonly value: unknown },
  ): void {
    if (!this.#apply(entry, 'complete', moment, details)) return
    this.#end(entry, { state: 'DONE', value: details.value, facts: details.facts })
  }

  #fail(entry: Entry, moment: Moment, report: FailReport): void {
    const { error, facts, isFinal } = report
    if (isWorkerLoss(report)) entry.workersLost++
    const isPoison = isPoisonous(entry.workersLost)
    const mayRetry = !isPoison && isFinal !== true
    const decision = mayRetry ? decideNext(entry, error, this.#parts.log) : null
    if (decision?.kind === 'retry' && entry.work !== null) {
      return this.#retry(entry, entry.work, moment, { error, delaySeconds: decision.delaySeconds })
    }
    const cause = isPoison ? toPoisonError(entry.workersLost, error) : error
    this.#endFailed(entry, moment, facts === undefined ? { error: cause } : { error: cause, facts })
  }

  #endFailed(entry: Entry, moment: Moment, details: ChangeDetails): void {
    if (!this.#apply(entry, 'fail', moment, details)) return
    const error = toTaskError(entry.task, details.error)
    this.#end(entry, { state: 'FAILED', error, ...findOutput(details.facts, error) })
  }

  /** Schedules the next attempt. The task holds no slot while it waits. */
  #retry(
    entry: Entry,
    work: Work,
    moment: Moment,
    { error, delaySeconds }: { readonly error: unknown; readonly delaySeconds: number },
  ): void {
    // The attempt is replaced before the event is emitted, so that a second report of the failed
    // attempt is ignored.
    entry.job = new Attempt(entry, work.spec, entry.attempt + 1, this.#parts)
    entry.isWithBackend = false
    const retry = new WaitingRetry(entry, moment.wallSeconds + delaySeconds)
    entry.retry = retry
    this.#apply(entry, 'retry', moment, { error })
    // A subscriber of this event may have canceled the task.
    if (hasEnded(entry.lifecycle.state)) return
    entry.attempt++
    entry.workerId = null
    const { limitedAttempt } = entry
    entry.limitedAttempt = null
    if (delaySeconds === 0) this.#beginRetry(entry)
    else this.#retries.set(retry, moment.monotonicMs + delaySeconds * 1000)
    // Called after the retry was added, because a retry precedes new tasks of the same priority.
    if (limitedAttempt !== null) this.#endLimited(limitedAttempt, false)
  }

  #beginRetry(entry: Entry): void {
    const waitingAttempt = this.#queueLimited(entry, true)
    if (waitingAttempt !== null) {
      this.#limits?.advance(waitingAttempt)
      return
    }
    this.#handOverOne(entry)
  }

  #queueLimited(entry: Entry, isRetry: boolean): LimitedAttempt<Entry> | null {
    if (this.#limits === null || hasEnded(entry.lifecycle.state)) return null
    const about = { item: entry, priority: entry.task.priority, isRetry }
    entry.limitedAttempt = this.#limits.add(entry.label, about)
    return entry.limitedAttempt
  }

  #beginLimited(entry: Entry): void {
    if (entry.lifecycle.state === 'SUBMITTED') this.#apply(entry, 'queue', this.#now())
    this.#handOverOne(entry)
  }

  #handOverOne(entry: Entry): void {
    const { connection, job } = entry
    if (connection === null || job === null) return
    entry.isWithBackend = true
    this.#handOver(connection, [job])
  }

  /** Submits jobs to a backend. If `submit` throws, the jobs fail and are not retried. */
  #handOver(connection: Connection, jobs: readonly Job[]): void {
    try {
      connection.submit(jobs)
    } catch (cause) {
      const text = `the backend failed to accept the job: ${messageOf(cause)}`
      const error = new BackendError(text, { cause })
      for (const job of jobs) {
        const entry = Attempt.findEntry(job)
        if (entry?.job === job) this.#endFailed(entry, this.#now(), { error })
      }
    }
  }

  /**
   * Cancels a job at its backend. If the backend throws, it will not end the job, so the ledger
   * cancels the task itself.
   */
  #cancelAtBackend(entry: Entry, job: Job, reason: string): void {
    try {
      entry.connection?.cancel(job, reason)
    } catch {
      this.#cancel(entry, this.#now(), reason)
    }
  }

  #cancel(entry: Entry, moment: Moment, reason: string, facts?: AttemptFacts): void {
    const error = toCancelError(entry.task, entry.cancelReason ?? reason)
    const details: ChangeDetails = facts === undefined ? { error } : { error, facts }
    if (!this.#apply(entry, 'cancel', moment, details)) return
    this.#end(entry, { state: 'CANCELED', error, ...findOutput(facts, error) })
  }

  /** Applies a stimulus. Returns `false` if it came too late to change the state. */
  #apply(entry: Entry, stimulus: Stimulus, moment: Moment, details = noDetails): boolean {
    const lifecycle = advance(entry.lifecycle, stimulus, moment)
    if (lifecycle === null) return false
    entry.lifecycle = lifecycle
    entry.record.state = lifecycle.state
    this.emitter.changed(entry, details)
    return true
  }

  #end(entry: Entry, outcome: Outcome): void {
    const { task } = entry
    this.#open.delete(entry)
    if (entry.retry !== null) this.#retries.remove(entry.retry)
    entry.record.settle(outcome)
    if (task.signal !== null) this.#signals.remove(task.signal, task)
    this.#parts.onEnded()
    entry.owner?.ended(outcome)
    for (const listener of entry.takeEndListeners()) listener.ended()
    if (entry.limitedAttempt !== null)
      this.#endLimited(entry.limitedAttempt, outcome.state === 'DONE')
  }

  /**
   * Ends an attempt for the name limits. First counts the start of an attempt that has run, because
   * some backends report no starts.
   */
  #endLimited(attempt: LimitedAttempt<Entry>, hasRun: boolean): void {
    if (hasRun) this.#limits?.start(attempt)
    this.#limits?.end(attempt)
  }

  /** The time of a change that directly follows another one. Without telemetry, both are equal. */
  #nextMoment(before: Moment): Moment {
    return this.emitter.isNull ? before : this.#now()
  }

  #now(): Moment {
    return readMoment(this.#parts.clock)
  }
}
