/** One worker from its start to its exit. Reports the outcomes of its jobs. */

import { WorkerLost } from '../../../events/library-events.ts'
import { type Job, type TaskReport, toEventNotice } from '../../backend.ts'
import type { ExecutorListener } from '../executor.ts'
import { toUpdateNotice } from '../../task-updates.ts'
import {
  type Assignment,
  Assignments,
  type AssignmentsOptions,
  type RunningJob,
} from './assignments.ts'
import { toArgumentsError, BatchMessages } from './batch-message.ts'
import { fromErrorRecord, toErrorRecord } from '../../../foundation/error-record.ts'
import { TaskCanceledError } from '../../../foundation/task-errors.ts'
import {
  notBegunError,
  overtimeError,
  toLostReport,
  toWorkerLoss,
  type WorkerLoss,
} from './job-failure.ts'
import { machineMs } from '../machine-time.ts'
import type { TuttiError } from '../../../foundation/errors.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener } from './protocol.ts'

export interface PooledWorkerOptions extends AssignmentsOptions {
  readonly listener: ExecutorListener
  readonly importTimeoutSeconds: number
  readonly beginDeadlineMs: number
  /** For each job, the number of workers that got the job and did not begin it. */
  readonly unbegunCounts: WeakMap<Job, number>
  /** The number of threads that still run because they could not be ended. */
  readonly abandoned: { count: number }
  onIgnoredMessage(): void
  /** Starts the worker; may throw. */
  connect(workerId: string, listener: WorkerLinkListener): WorkerLink
}

/** Receives the events of a worker. */
export interface WorkerOwner {
  onReady(): void
  /** Called once, when the worker begins its first job. */
  onBegin(): void
  /** Called once at the worker's exit, before its unfinished jobs are reported. */
  onEnd(end: WorkerOutcome): void
  onAdvance(): void
}

/** How a worker ended, and the batches that return to its owner. */
export interface WorkerOutcome {
  /** Whether the worker exited before it began a job. Its batches then go to other workers. */
  readonly hasFailedToStart: boolean
  readonly assignments: readonly Assignment[]
  readonly loss: WorkerLoss
}

/** How long jobs wait behind a running job before they are requeued for other workers. */
const requeueAfterMs = 25
const readyDeadlineMs = 60_000
/**
 * The maximum time that is counted between two polls. A longer gap means that this process was
 * suspended.
 */
const maxGapMs = 1000
/** How long a killed worker may take to exit. A thread cannot exit within a native call. */
const killGraceMs = 5000
/** How long a job that listens to its abort signal may take to end after the abort. */
const abortGraceMs = 1000
const maxLostWorkers = 5

type ReportFactory = (job: Job) => TaskReport | null

type StoppedJob = Pick<RunningJob, 'assignment' | 'index' | 'job'>

export class PooledWorker {
  readonly #id: string
  readonly #options: PooledWorkerOptions
  readonly #owner: WorkerOwner
  readonly #link: WorkerLink
  readonly #assignments: Assignments
  readonly #messages = new BatchMessages()
  #isReady = false
  #hasBegun = false
  /** How long the worker has had jobs without beginning one, as of `#polledAt`. */
  #idleMs = 0
  #polledAt = machineMs()
  #cancelGrace: (() => void) | null = null
  #listeningSlot: number | null = null
  #cancelAbort: (() => void) | null = null
  #hasLongJob = false
  #isEnding = false
  #hasExited = false
  #killReport: ReportFactory | null = null
  #loss: WorkerLoss | null = null

  constructor(id: string, options: PooledWorkerOptions, owner: WorkerOwner) {
    this.#id = id
    this.#options = options
    this.#owner = owner
    this.#link = options.connect(id, {
      message: (message) => this.#receive(message),
      ignored: () => options.onIgnoredMessage(),
      exit: (exit) => this.#handleExit(exit),
    })
    this.#assignments = new Assignments(this.#link.mailbox, id, options)
  }

  get isEnding(): boolean {
    return this.#isEnding
  }

  get isReady(): boolean {
    return this.#isReady
  }

  get isFull(): boolean {
    return this.#assignments.isFull
  }

  /**
   * Whether the outcomes of all jobs are reported. The worker may not have finished all slots yet.
   */
  get isDone(): boolean {
    return this.#assignments.all.every((one) => one.isDone)
  }

  get isEmpty(): boolean {
    return this.#assignments.isEmpty
  }

  get canPrefetch(): boolean {
    const areShort = this.#hasBegun && !this.#hasLongJob && this.#options.durations.areShort
    return areShort && !this.isFull
  }

  assign(assignment: Assignment): void {
    const { message, unsendable } = this.#messages.build(assignment)
    const refused = unsendable.map(({ index, error }) => ({
      job: assignment.withdraw(index),
      error,
    }))
    if (!assignment.isDone) this.#post(assignment, message)
    for (const { job, error } of refused) {
      if (job !== undefined) this.#options.listener.report(job, { kind: 'fail', error })
    }
    assignment.finish()
  }

  #post(assignment: Assignment, message: Omit<BatchMessage, 'bank'>): void {
    this.#assignments.add(assignment)
    for (let index = 0; index < assignment.count; index++) {
      if (assignment.hasEnded(index)) this.#link.mailbox.revoke(assignment.slotOf(index))
    }
    try {
      this.#link.setBusy(true)
      this.#link.post({ ...message, bank: assignment.bank })
    } catch (error) {
      this.#assignments.remove(assignment)
      assignment.endAll(({ spec }) => ({
        kind: 'fail',
        error: toArgumentsError(spec.kind === 'function' ? spec.args : [], error),
      }))
    }
  }

  cancel(job: Job, reason: string): boolean {
    for (const assignment of this.#assignments.all) {
      const index = assignment.indexOf(job)
      if (index === -1) continue
      if (this.#assignments.revoke(assignment, index)) {
        assignment.end(index, { kind: 'cancel', reason })
        assignment.finish()
      } else if (!this.#assignments.hasFinished(assignment, index)) {
        const { facts } = this.#assignments
        const error = new TaskCanceledError(job.uid, reason)
        this.#stopJob({ assignment, index, job }, { kind: 'cancel', reason, facts }, error)
      }
      return true
    }
    return false
  }

  /** Detects starts, time-outs and jobs that wait behind a long job. No message reports these. */
  poll(): void {
    this.#read()
    // The link is set to idle only here, because a sequence of single tasks would otherwise toggle
    // it for each task. A starting worker counts as busy, because it may be all that keeps this
    // process alive.
    const isIdle = this.#assignments.isEmpty && this.#isReady
    if (isIdle && !this.#isEnding) this.#link.setBusy(false)
    const running = this.#assignments.current()
    const sinceMs = running?.startedMs ?? running?.importStartedMs ?? null
    if (running === null || sinceMs === null) return this.#checkBegin()
    this.#markBegun()
    this.#idleMs = 0
    if (this.#isEnding) return
    const elapsedMs = this.#options.clock.monotonicMs() - sinceMs
    const error = overtimeError(running, elapsedMs, this.#options.importTimeoutSeconds)
    if (error !== null) {
      const { facts } = this.#assignments
      this.#stopJob(running, { kind: 'fail', error, facts }, error)
    } else if (elapsedMs > requeueAfterMs) {
      this.#hasLongJob = true
      this.#requeue()
    }
  }

  #checkBegin(): void {
    const now = machineMs()
    const gapMs = Math.min(maxGapMs, now - this.#polledAt)
    this.#polledAt = now
    const hasJobs = !this.#assignments.isEmpty && this.#assignments.unreported() === null
    const isAwaited = hasJobs || !this.#isReady
    this.#idleMs = isAwaited ? this.#idleMs + gapMs : 0
    const limitMs = this.#isReady ? this.#options.beginDeadlineMs : readyDeadlineMs
    if (this.#isEnding || this.#idleMs < limitMs) return
    const what = this.#isReady ? 'did not begin a job' : 'was not ready'
    this.#loss = { reason: `it ${what} within ${limitMs / 1000} s` }
    this.#isEnding = true
    this.#kill('unresponsive')
  }

  /** Ends a running job: aborts its signal if its code uses it, or else kills the worker. */
  #stopJob(one: StoppedJob, report: TaskReport, error: TuttiError): void {
    const { assignment, index, job } = one
    if (assignment.forcedReport(index) !== null) return
    const slot = assignment.slotOf(index)
    if (this.#listeningSlot !== slot || this.#isEnding) return this.#endForJob(one, report)
    assignment.forcedOutcome = { index, report }
    this.#requeue()
    this.#link.abort({ abort: slot, reason: toErrorRecord(error) })
    this.#cancelAbort = this.#options.clock.after(abortGraceMs, () => {
      if (assignment.indexOf(job) !== -1) this.#endForJob(one, report)
    })
  }

  #markBegun(): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#owner.onBegin()
  }

  close(reason: string): void {
    const { facts } = this.#assignments
    for (const assignment of this.#assignments.all) {
      for (let index = assignment.readCount; index < assignment.count; index++) {
        if (!this.#assignments.revoke(assignment, index)) continue
        assignment.end(index, { kind: 'cancel', reason })
      }
      assignment.finish()
    }
    this.#link.setBusy(true)
    this.#endWith(() => ({ kind: 'cancel', reason, facts }))
  }

  /** Called when the worker has exited, or is abandoned after `killGraceMs`. */
  #handleExit(exit: WorkerExit): void {
    if (this.#hasExited) {
      this.#options.abandoned.count--
      return
    }
    this.#hasExited = true
    this.#cancelGrace?.()
    this.#cancelAbort?.()
    this.#isEnding = true
    this.#read()
    const running = this.#assignments.running()
    const loss = this.#loss ?? toWorkerLoss(exit)
    const assignments = [...this.#assignments.all]
    const isUnwanted = this.#killReport === null
    const isWithoutJobs = running === null && this.#assignments.unreported() === null
    const hasFailedToStart = isUnwanted && !this.#hasBegun && isWithoutJobs
    if (isUnwanted && isWithoutJobs && this.#isReady) this.#failUnreadable()
    const unbegun = hasFailedToStart ? [] : this.#assignments.revokeAll()
    if (isUnwanted || exit.abandonedCount !== undefined) this.#reportLoss(loss, running)
    this.#owner.onEnd({ hasFailedToStart, assignments: hasFailedToStart ? assignments : [], loss })
    // A finished job without a result is lost, but later jobs may have complete results.
    let lostJob = this.#assignments.unreported()
    while (lostJob !== null) {
      this.#failLost(lostJob, exit, loss)
      this.#assignments.read()
      lostJob = this.#assignments.unreported()
    }
    if (running !== null) this.#failLost(running, exit, loss)
    if (unbegun.length > 0) this.#options.listener.requeue(unbegun)
    if (!hasFailedToStart) for (const assignment of assignments) assignment.finish()
  }

  /** Fails a job that several workers have not begun, probably because they cannot read it. */
  #failUnreadable(): void {
    const next = this.#assignments.firstUnfinished()
    if (next === null) return
    const { unbegunCounts } = this.#options
    const { assignment, index, job } = next
    const workers = (unbegunCounts.get(job) ?? 0) + 1
    unbegunCounts.set(job, workers)
    if (workers < maxLostWorkers || !this.#assignments.revoke(assignment, index)) return
    const error = notBegunError(job, workers)
    assignment.end(index, { kind: 'fail', error, facts: this.#assignments.facts })
  }

  #failLost({ assignment, index, job }: RunningJob, exit: WorkerExit, loss: WorkerLoss): void {
    // An aborted job gets the report of its abort, even if its code ends the worker.
    const wanted = assignment.forcedReport(index) ?? this.#killReport?.(job)
    assignment.end(index, wanted ?? toLostReport(job, this.#assignments.facts, exit, loss))
  }

  #reportLoss({ reason }: WorkerLoss, running: RunningJob | null): void {
    const tasks = running === null ? [] : [running.job.uid]
    const { listener, nodeId } = this.#options
    const fields = { worker_id: this.#id, reason, tasks }
    listener.notice(toEventNotice(WorkerLost, fields, { nodeId }))
  }

  #receive(message: WorkerMessage): void {
    if (this.#hasExited) return
    if (message.kind === 'ready') {
      this.#isReady = true
      this.#owner.onReady()
    } else if (message.kind === 'update' || message.kind === 'listens') {
      return this.#handleUpdate(message)
    } else if (message.kind === 'dying') {
      this.#loss ??= { reason: message.reason, cause: fromErrorRecord(message.error) }
      this.#isEnding = true
      this.#requeue()
    } else if (message.kind === 'value' || message.kind === 'failure') {
      this.#assignments.deliver(message)
    } else if (message.kind === 'unreadable') {
      this.#read()
      if (!this.#assignments.deliverUnreadable(message.error)) this.#kill()
    }
    this.#read()
  }

  #handleUpdate(message: Extract<WorkerMessage, { kind: 'update' | 'listens' }>): void {
    this.#read()
    const job = this.#assignments.findStarted(message.slot)?.job
    if (job === undefined) return
    if (message.kind === 'listens') {
      this.#listeningSlot = message.slot
      return
    }
    const { listener, nodeId } = this.#options
    listener.notice(toUpdateNotice(message.update, job.uid, nodeId), job)
  }

  #read(): void {
    if (!this.#assignments.read()) return
    this.#listeningSlot = null
    this.#cancelAbort?.()
    this.#cancelAbort = null
    this.#markBegun()
    this.#hasLongJob = false
    this.#owner.onAdvance()
  }

  /**
   * Kills the worker to end one job. First revokes the jobs that have not begun. If the job has
   * ended in the meantime, the worker is kept, because it may be running another job.
   */
  #endForJob({ assignment, index, job }: StoppedJob, report: TaskReport): void {
    const jobs = this.#assignments.revokeAll()
    if (this.#assignments.isStillAt(assignment, index)) {
      this.#endWith((one) => (one === job ? report : null))
    }
    this.#requeue(jobs)
  }

  #endWith(endReport: ReportFactory): void {
    this.#isEnding = true
    this.#killReport ??= endReport
    this.#kill()
  }

  #kill(why?: 'unresponsive'): void {
    this.#link.kill(why)
    this.#cancelGrace ??= this.#options.clock.after(killGraceMs, () => this.#abandon())
  }

  /** Stops waiting for a killed worker, because a thread in a native call cannot exit. */
  #abandon(): void {
    const { abandoned } = this.#options
    abandoned.count++
    this.#loss = null
    this.#link.setBusy(false)
    this.#handleExit({ abandonedCount: abandoned.count })
  }

  #requeue(jobs = this.#assignments.revokeAll()): void {
    if (jobs.length > 0) this.#options.listener.requeue(jobs)
    for (const assignment of this.#assignments.all) assignment.finish()
  }
}
