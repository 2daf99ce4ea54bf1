/** The only writer of task state: every change goes through `advance` and makes one event. */

import type {
  AnyTask,
  AttemptFacts,
  Backend,
  Connection,
  Job,
  TaskReport,
} from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { IndexedSet } from '../runtime/indexed-set.ts'
import { advance, hasEnded, type Moment, newLife, type Stimulus } from '../tasks/lifecycle.ts'
import { ledgerAccess, type Outcome, type Task } from '../tasks/task.ts'
import {
  Attempt,
  type AttemptSession,
  Entry,
  executableOf,
  type HeldEnd,
  type Registration,
} from './entry.ts'
import { isLostWorker, isPoisonous, toCancelError, toPoisonError, toTaskError } from './failure.ts'
import { type Ending, type Narrator, nullNarrator } from './lifecycle-emitter.ts'
import { UidRegister } from './uid-register.ts'

export interface LedgerParts extends AttemptSession {
  readonly clock: Clock
  /** A task has ended and was let go. */
  onEnded(task: Task, outcome: Outcome, owner: object | null): void
}

const noEnding: Ending = Object.freeze({})

export class Ledger {
  narrator: Narrator = nullNarrator
  readonly #parts: LedgerParts
  readonly #uids = new UidRegister()
  readonly #open = new IndexedSet<Entry>()
  #lateReports = 0
  #isClosing = false

  constructor(parts: LedgerParts) {
    this.#parts = parts
  }

  /** Tasks that have not ended. */
  get openTasks(): number {
    return this.#open.size
  }

  /** Reports that came after the end of their attempt and changed nothing. */
  get lateReports(): number {
    return this.#lateReports
  }

  /** The entry of an open task of this session. */
  find(task: Task): Entry | undefined {
    const holder = ledgerAccess.holderOf(task) as Entry | null
    return holder !== null && this.#open.has(holder) ? holder : undefined
  }

  /** Promises that the task will be opened: it can be awaited. `false` when it, or its uid, was. */
  bind(task: Task): boolean {
    const uid = ledgerAccess.uidOf(task)
    if (!this.#uids.claim(uid)) return false
    if (ledgerAccess.bind(task, this)) return true
    this.#uids.release(uid)
    return false
  }

  /** Takes the promise back. */
  unbind(task: Task, cause: unknown): void {
    this.#uids.release(ledgerAccess.uidOf(task))
    ledgerAccess.unbind(task, cause)
  }

  /** Whether the task is bound to this session and was not opened yet. */
  isPromised(task: Task): boolean {
    return ledgerAccess.holderOf(task) === this
  }

  /** Registers a task that was bound: CREATED. */
  open(task: AnyTask): Entry {
    return this.#register(task, { executable: executableOf(task) }, task)
  }

  /** Registers a task that was bound: CREATED. It is held until `release`. */
  hold(task: Task, registration: Registration): Entry {
    return this.#register(task, registration, null)
  }

  /** Gives a held task what is to run; from now on it is like any other. */
  release(entry: Entry, work: AnyTask): void {
    this.#setWork(entry, work)
    if (work.kind !== 'function') entry.executable = executableOf(work)
  }

  /** Ends a task that is held; SUBMITTED comes first, so that the order of its events is kept. */
  endHeld(entry: Entry, end: HeldEnd): void {
    if (entry.job !== null || hasEnded(entry.life.state)) return
    entry.backend = entry.task.backend ?? ''
    const now = this.#now()
    this.#apply(entry, 'submit', now)
    this.#take(entry, now, end)
  }

  /** Routing chose a backend: SUBMITTED and, as it is about to be handed over, QUEUED. */
  assign(entry: Entry, backend: Pick<Backend, 'name' | 'model'>, connection: Connection): void {
    entry.backend = backend.name
    entry.connection = connection
    if (entry.task.kind === 'ai' && entry.executable === '') entry.executable = backend.model ?? ''
    ledgerAccess.setBackend(entry.task, backend.name)
    const now = this.#now()
    this.#apply(entry, 'submit', now)
    if (entry.cancelReason !== null) this.#cancel(entry, now, entry.cancelReason)
    else this.#apply(entry, 'queue', this.#now())
  }

  /** Hands over what was queued and has not been canceled meanwhile. */
  submit(connection: Connection, entries: readonly Entry[]): void {
    const jobs: Job[] = []
    for (const entry of entries) {
      if (entry.life.state !== 'QUEUED' || entry.job === null) continue
      entry.isWithBackend = true
      jobs.push(entry.job)
    }
    if (jobs.length > 0) connection.submit(jobs)
  }

  /** Takes a backend's report in. */
  record(job: Job, report: TaskReport): void {
    const entry = Attempt.entryOf(job)
    const isOpen = entry !== null && this.#open.has(entry) && !hasEnded(entry.life.state)
    if (isOpen && entry.job === job) this.#take(entry, report.at ?? this.#now(), report)
    else this.#lateReports++
  }

  /** Asks for a task's end; `true` once, `false` when it was asked for or has ended. */
  requestCancel(task: Task, reason: string): boolean {
    const entry = this.find(task)
    if (entry === undefined || entry.cancelReason !== null) return false
    if (hasEnded(entry.life.state)) return false
    entry.cancelReason = reason
    if (entry.job === null) this.endHeld(entry, { kind: 'cancel', reason })
    else if (entry.isWithBackend) entry.connection?.cancel(entry.job, reason)
    // A task that is only registered is ended by `assign`, so that the order of its events is kept.
    else if (entry.life.state !== 'CREATED') this.#cancel(entry, this.#now(), reason)
    return true
  }

  /** From now on nothing is tried again. */
  beginClosing(): void {
    this.#isClosing = true
  }

  /** Ends what no backend has ended, for a backend that did not answer. */
  cancelRest(reason: string): void {
    for (const entry of this.#open.toArray()) {
      if (entry.job === null) this.endHeld(entry, { kind: 'cancel', reason })
      else this.#cancel(entry, this.#now(), reason)
    }
  }

  #register(task: Task, registration: Registration, work: AnyTask | null): Entry {
    const moment = this.#now()
    const entry = new Entry(task, newLife(moment), registration)
    if (work !== null) this.#setWork(entry, work)
    this.#open.add(entry)
    ledgerAccess.setHolder(task, entry)
    this.narrator.created(entry, moment.wallSeconds)
    return entry
  }

  #setWork(entry: Entry, work: AnyTask): void {
    entry.work = work
    entry.job = new Attempt(entry, work.spec, 1, this.#parts)
  }

  #take(entry: Entry, moment: Moment, report: TaskReport): void {
    if (report.kind === 'start') return this.#start(entry, moment, report.workerId, report.nodeId)
    const { facts } = report
    if (facts?.workerId !== undefined) entry.workerId = facts.workerId
    if (report.kind === 'complete') this.#complete(entry, moment, report.value, facts)
    else if (report.kind === 'fail') this.#fail(entry, moment, report.error, facts)
    else this.#cancel(entry, moment, report.reason, facts)
  }

  #start(entry: Entry, moment: Moment, workerId: string, nodeId: string): void {
    if (entry.life.state === 'RUNNING' && !entry.life.isBetweenAttempts) {
      this.#lateReports++
      return
    }
    entry.workerId = workerId
    entry.nodeId = nodeId
    this.#apply(entry, 'start', moment)
  }

  #complete(entry: Entry, moment: Moment, value: unknown, facts?: AttemptFacts): void {
    const ending: Ending = facts === undefined ? { value } : { value, facts }
    if (this.#apply(entry, 'complete', moment, ending)) this.#end(entry, { state: 'DONE', value })
  }

  #fail(entry: Entry, moment: Moment, error: unknown, facts?: AttemptFacts): void {
    if (isLostWorker(error)) entry.workersLost++
    const isPoison = isPoisonous(entry.workersLost)
    const mayRetry = entry.attempt <= entry.task.retries && !isPoison && !this.#isClosing
    if (mayRetry && entry.cancelReason === null && entry.work !== null) {
      return this.#retry(entry, entry.work, moment, error)
    }
    const cause = isPoison ? toPoisonError(entry.workersLost, error) : error
    const ending: Ending = facts === undefined ? { error: cause } : { error: cause, facts }
    if (!this.#apply(entry, 'fail', moment, ending)) return
    this.#end(entry, { state: 'FAILED', error: toTaskError(entry.task, cause) })
  }

  #retry(entry: Entry, work: AnyTask, moment: Moment, error: unknown): void {
    // First, so that a repeated report of the failed attempt is late already.
    const job = new Attempt(entry, work.spec, entry.attempt + 1, this.#parts)
    entry.job = job
    this.#apply(entry, 'retry', moment, { error })
    // Whoever heard of the failed attempt may have asked for the end.
    if (entry.cancelReason !== null) return this.#cancel(entry, moment, entry.cancelReason)
    entry.attempt++
    entry.workerId = null
    entry.connection?.submit([job])
  }

  #cancel(entry: Entry, moment: Moment, reason: string, facts?: AttemptFacts): void {
    const error = toCancelError(entry.task, entry.cancelReason ?? reason)
    const ending: Ending = facts === undefined ? { error } : { error, facts }
    if (this.#apply(entry, 'cancel', moment, ending)) this.#end(entry, { state: 'CANCELED', error })
  }

  /** `false` when the stimulus comes too late. */
  #apply(entry: Entry, stimulus: Stimulus, moment: Moment, ending = noEnding): boolean {
    const life = advance(entry.life, stimulus, moment)
    if (life === null) return false
    entry.life = life
    ledgerAccess.setState(entry.task, life.state)
    this.narrator.changed(entry, ending)
    return true
  }

  #end(entry: Entry, outcome: Outcome): void {
    this.#open.delete(entry)
    ledgerAccess.settle(entry.task, outcome)
    this.#parts.onEnded(entry.task, outcome, entry.owner)
    for (const hear of entry.waiters ?? []) hear()
  }

  #now(): Moment {
    const { clock } = this.#parts
    return { wallSeconds: clock.now(), monotonicMs: clock.monotonicMs() }
  }
}
