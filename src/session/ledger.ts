/**
 * The only writer of task state: every change goes through `advance`, and one change makes one
 * event.
 */

import type {
  AnyTask,
  AttemptFacts,
  Backend,
  Connection,
  Job,
  TaskReport,
} from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { TaskCanceledError } from '../foundation/task-errors.ts'
import {
  advance,
  type Change,
  hasEnded,
  type Moment,
  newLife,
  type Stimulus,
} from '../tasks/lifecycle.ts'
import { ledgerAccess, type Outcome } from '../tasks/task.ts'
import type { Entry } from './entry.ts'
import { isLostWorker, toPoisonError, toTaskError } from './failure.ts'
import { type Ending, type Narrator, nullNarrator } from './narrator.ts'

/** After so many workers died under it, a task is not tried again. */
const poisonLimit = 3

export interface LedgerParts {
  readonly clock: Clock
  readonly workDir: string | null
  /** A task has ended and was let go. */
  readonly onEnded: (task: AnyTask) => void
}

export class Ledger {
  narrator: Narrator = nullNarrator
  readonly #parts: LedgerParts
  readonly #entries = new Map<string, Entry>()
  #lateReports = 0
  #isClosing = false

  constructor(parts: LedgerParts) {
    this.#parts = parts
  }

  /** Tasks that have not ended. */
  get openTasks(): number {
    return this.#entries.size
  }

  /** Reports that came after the end of their attempt and changed nothing. */
  get lateReports(): number {
    return this.#lateReports
  }

  has(uid: string): boolean {
    return this.#entries.has(uid)
  }

  /** The entry of an open task; another session's task may have the same uid. */
  find(task: AnyTask): Entry | undefined {
    const entry = this.#entries.get(task.uid)
    return entry?.task === task ? entry : undefined
  }

  /**
   * Promises that the task will be opened, so that it can be awaited; `false` when it is promised.
   */
  bind(task: AnyTask): boolean {
    return ledgerAccess.bind(task)
  }

  /** Takes the promise back. */
  unbind(task: AnyTask, cause: unknown): void {
    ledgerAccess.unbind(task, cause)
  }

  /** Registers a task that was bound: CREATED. */
  open(task: AnyTask): Entry {
    const moment = this.#now()
    const entry: Entry = {
      task,
      life: newLife(moment),
      backend: '',
      connection: null,
      isWithBackend: false,
      job: this.#createJob(task, 1),
      attempt: 1,
      workersLost: 0,
      workerId: null,
      nodeId: null,
      executable: task.kind === 'ai' ? (task.model ?? '') : task.executable,
      attributes: null,
      cancelReason: null,
      waiters: null,
    }
    this.#entries.set(task.uid, entry)
    this.narrator.created(entry, moment.wallSeconds)
    return entry
  }

  /** Routing chose a backend: SUBMITTED. */
  assign(entry: Entry, backend: Backend, connection: Connection): void {
    entry.backend = backend.name
    entry.connection = connection
    if (entry.task.kind === 'ai') entry.executable = entry.task.model ?? backend.model ?? ''
    ledgerAccess.setBackend(entry.task, backend.name)
    const now = this.#now()
    this.#apply(entry, 'submit', now)
    if (entry.cancelReason !== null) this.#cancel(entry, now, entry.cancelReason)
  }

  /** About to be handed to the backend: QUEUED. Nothing happens to one that was canceled. */
  queue(entry: Entry): void {
    if (entry.life.state === 'SUBMITTED') this.#apply(entry, 'queue', this.#now())
  }

  /** Hands over what was queued and has not been canceled meanwhile. */
  submit(connection: Connection, entries: readonly Entry[]): void {
    const open = entries.filter(({ life }) => life.state === 'QUEUED')
    for (const entry of open) entry.isWithBackend = true
    if (open.length > 0) connection.submit(open.map(({ job }) => job))
  }

  /** Takes a backend's report in. */
  record(job: Job, report: TaskReport): void {
    const entry = this.#entries.get(job.uid)
    if (entry?.job !== job || hasEnded(entry.life.state)) {
      this.#lateReports++
      return
    }
    const moment = report.at ?? this.#now()
    switch (report.kind) {
      case 'start':
        return this.#start(entry, moment, report.workerId, report.nodeId)
      case 'complete':
        return this.#complete(entry, moment, report.value, report.facts)
      case 'fail':
        return this.#fail(entry, moment, report.error, report.facts)
      case 'cancel':
        return this.#cancel(entry, moment, report.reason, report.facts)
    }
  }

  /** Asks for a task's end; `true` once, `false` when it was asked for or has ended. */
  requestCancel(task: AnyTask, reason: string): boolean {
    const entry = this.find(task)
    if (entry === undefined || entry.cancelReason !== null) return false
    if (hasEnded(entry.life.state)) return false
    entry.cancelReason = reason
    if (entry.isWithBackend) entry.connection?.cancel(entry.job, reason)
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
    for (const entry of this.#entries.values()) this.#cancel(entry, this.#now(), reason)
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
    this.#takeWorker(entry, facts)
    const ending: Ending = facts === undefined ? { value } : { value, facts }
    if (this.#apply(entry, 'complete', moment, ending)) this.#end(entry, { state: 'DONE', value })
  }

  #fail(entry: Entry, moment: Moment, error: unknown, facts?: AttemptFacts): void {
    this.#takeWorker(entry, facts)
    if (isLostWorker(error)) entry.workersLost++
    const isPoison = entry.workersLost >= poisonLimit
    const mayRetry = entry.attempt <= entry.task.retries && !isPoison
    if (mayRetry && entry.cancelReason === null && !this.#isClosing) {
      return this.#retry(entry, moment, error)
    }
    const cause = isPoison ? toPoisonError(entry.workersLost, error) : error
    const ending: Ending = facts === undefined ? { error: cause } : { error: cause, facts }
    if (!this.#apply(entry, 'fail', moment, ending)) return
    this.#end(entry, { state: 'FAILED', error: toTaskError(entry.task, cause) })
  }

  #retry(entry: Entry, moment: Moment, error: unknown): void {
    // First, so that a repeated report of the failed attempt is late already.
    entry.job = this.#createJob(entry.task, entry.attempt + 1)
    this.#apply(entry, 'retry', moment, { error })
    // Whoever heard of the failed attempt may have asked for the end.
    if (entry.cancelReason !== null) return this.#cancel(entry, moment, entry.cancelReason)
    entry.attempt++
    entry.workerId = null
    entry.connection?.submit([entry.job])
  }

  #cancel(entry: Entry, moment: Moment, reason: string, facts?: AttemptFacts): void {
    this.#takeWorker(entry, facts)
    const error = new TaskCanceledError(entry.task.uid, entry.cancelReason ?? reason)
    const ending: Ending = facts === undefined ? { error } : { error, facts }
    if (this.#apply(entry, 'cancel', moment, ending)) this.#end(entry, { state: 'CANCELED', error })
  }

  #takeWorker(entry: Entry, facts: AttemptFacts | undefined): void {
    if (facts?.workerId !== undefined) entry.workerId = facts.workerId
  }

  #apply(entry: Entry, stimulus: Stimulus, moment: Moment, ending: Ending = {}): Change | null {
    const change = advance(entry.life, stimulus, moment)
    if (change === null) return null
    entry.life = change.life
    ledgerAccess.setState(entry.task, change.life.state)
    this.narrator.changed(entry, change, ending)
    return change
  }

  #end(entry: Entry, outcome: Outcome): void {
    this.#entries.delete(entry.task.uid)
    ledgerAccess.settle(entry.task, outcome)
    this.#parts.onEnded(entry.task)
    for (const hear of entry.waiters ?? []) hear()
  }

  #createJob(task: AnyTask, attempt: number): Job {
    const { workDir } = this.#parts
    const { uid } = task
    return workDir === null ? { uid, task, attempt } : { uid, task, attempt, workDir }
  }

  #now(): Moment {
    const { clock } = this.#parts
    return { wallSeconds: clock.now(), monotonicMs: clock.monotonicMs() }
  }
}
