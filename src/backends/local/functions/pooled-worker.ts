/** One worker from its start to its exit. Reports the jobs that were assigned to it. */

import type { Job, TaskReport } from '../../backend.ts'
import type { ExecutorListener } from '../executor.ts'
import { toUpdateNotice } from '../../task-updates.ts'
import {
  type Assignment,
  Assignments,
  type AssignmentsOptions,
  type RunningJob,
} from './assignments.ts'
import { argumentsError, BatchMessages } from './batch-message.ts'
import { fromErrorRecord, toErrorRecord } from '../../../foundation/error-record.ts'
import { TaskCanceledError } from '../../../foundation/task-errors.ts'
import { type Loss, lossOf, lostReport, toLossNotice } from './job-failure.ts'
import { overtimeError, unreadableError } from './job-failure.ts'
import { machineMs } from '../machine-time.ts'
import type { TuttiError } from '../../../foundation/errors.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener } from './protocol.ts'

export interface PooledWorkerOptions extends AssignmentsOptions {
  readonly listener: ExecutorListener
  /** How long the import of a module may take. */
  readonly importTimeoutSeconds: number
  /** How long a worker may leave an assigned job unstarted. */
  readonly beginDeadlineMs: number
  /** For each job, how many workers got it and did not begin it. */
  readonly unbegun: WeakMap<Job, number>
  /** The number of threads that could not be ended and still run. */
  readonly leftBehind: { count: number }
  /** User code in a worker sent a message of its own, which is ignored. */
  onIgnoredMessage(): void
  /** Starts the worker; may throw. */
  connect(workerId: string, listener: WorkerLinkListener): WorkerLink
}

/** The handle that owns the worker. */
export interface WorkerOwner {
  /** Called once, when the worker can begin jobs. */
  ready(): void
  /** Called once, when the worker has begun its first job. */
  begin(): void
  /** Called once when the worker exits, before its unfinished jobs are reported. */
  end(end: WorkerEnd): void
  /** Jobs have ended, so there may be room for another batch. */
  advance(): void
}

/** The exit of a worker, and the batches that return to its owner. */
export interface WorkerEnd {
  /** The worker exited unasked before it began a job, so another worker can take its batches. */
  readonly hasFailedToStart: boolean
  readonly assignments: readonly Assignment[]
  readonly loss: Loss
}

/** If a job runs longer than this, the jobs behind it are given back for other workers. */
const stuckMs = 25
/** How long a worker may take to become ready. */
const readyDeadlineMs = 60_000
/** A longer gap between polls counts as this long: this process may have been suspended. */
const maxGapMs = 1000
/** How long a killed worker may take to exit. A thread cannot exit within a native call. */
const killGraceMs = 5000
/** How long code that uses its abort signal may take to end by itself. */
const abortGraceMs = 1000
const maxUnbegun = 5

type EndReport = (job: Job) => TaskReport | null

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
  /** How long the worker has left assigned jobs unstarted. Last updated at `#polledAt`. */
  #idleMs = 0
  #polledAt = machineMs()
  #cancelGrace: (() => void) | null = null
  /** The slot of the job whose code has asked for its abort signal. */
  #listening: number | null = null
  #cancelAbort: (() => void) | null = null
  #isStuck = false
  #isEnding = false
  #hasExited = false
  /** The report for the job that caused the worker to be killed. */
  #endReport: EndReport | null = null
  /** The reason that the worker itself gave for its exit. */
  #loss: Loss | null = null

  constructor(id: string, options: PooledWorkerOptions, owner: WorkerOwner) {
    this.#id = id
    this.#options = options
    this.#owner = owner
    this.#link = options.connect(id, {
      message: (message) => this.#receive(message),
      ignored: () => options.onIgnoredMessage(),
      exit: (exit) => this.#exit(exit),
    })
    this.#assignments = new Assignments(this.#link.mailbox, id, options)
  }

  /** Whether the worker begins no further jobs and is about to exit. */
  get isEnding(): boolean {
    return this.#isEnding
  }

  /** Whether the worker's program has started. */
  get isReady(): boolean {
    return this.#isReady
  }

  get isFull(): boolean {
    return this.#assignments.isFull
  }

  /** Whether all jobs are reported, even if the worker has not passed all slots yet. */
  get isDone(): boolean {
    return this.#assignments.all.every((one) => one.isDone)
  }

  /** Whether the worker has passed all slots. */
  get isEmpty(): boolean {
    return this.#assignments.isEmpty
  }

  /** Whether a batch may wait behind the running one. */
  get hasPrefetchPlace(): boolean {
    const areShort = this.#hasBegun && !this.#isStuck && this.#options.durations.areShort
    return areShort && !this.isFull
  }

  take(assignment: Assignment): void {
    const { message, unsendable } = this.#messages.build(assignment)
    const refused = unsendable.map(({ index, error }) => ({ job: assignment.take(index), error }))
    if (!assignment.isDone) this.#post(assignment, message)
    for (const { job, error } of refused) {
      if (job !== undefined) this.#options.listener.report(job, { kind: 'fail', error })
    }
    assignment.finish()
  }

  #post(assignment: Assignment, message: Omit<BatchMessage, 'bank'>): void {
    this.#assignments.add(assignment)
    for (let index = 0; index < assignment.count; index++) {
      if (assignment.isOver(index)) this.#link.mailbox.revoke(assignment.slotOf(index))
    }
    try {
      this.#link.setBusy(true)
      this.#link.post({ ...message, bank: assignment.bank })
    } catch (error) {
      this.#assignments.remove(assignment)
      assignment.endAll(({ spec }) => ({
        kind: 'fail',
        error: argumentsError(spec.kind === 'function' ? spec.args : [], error),
      }))
    }
  }

  /** Returns `false` if this worker does not have the job. */
  cancel(job: Job, reason: string): boolean {
    for (const assignment of this.#assignments.all) {
      const index = assignment.indexOf(job)
      if (index === -1) continue
      if (this.#assignments.revoke(assignment, index)) {
        assignment.end(index, { kind: 'cancel', reason })
        assignment.finish()
      } else if (!this.#assignments.hasPassed(assignment, index)) {
        const { facts } = this.#assignments
        const error = new TaskCanceledError(job.uid, reason)
        this.#stop({ assignment, index, job }, { kind: 'cancel', reason, facts }, error)
      }
      return true
    }
    return false
  }

  /** Detects what no message reports: starts, time-outs, and jobs that wait behind a long one. */
  poll(): void {
    this.#read()
    // Changed only at a poll, because a sequence of single tasks would toggle it for each task. A
    // starting worker counts as busy, because it may be all that keeps this process alive.
    const isIdle = this.#assignments.isEmpty && this.#isReady
    if (isIdle && !this.#isEnding) this.#link.setBusy(false)
    const running = this.#assignments.current()
    const sinceMs = running?.sinceMs ?? running?.importingSinceMs ?? null
    if (running === null || sinceMs === null) return this.#expectBegin()
    this.#begin()
    this.#idleMs = 0
    if (this.#isEnding) return
    const elapsedMs = this.#options.clock.monotonicMs() - sinceMs
    const error = overtimeError(running, elapsedMs, this.#options.importTimeoutSeconds)
    if (error !== null) {
      const { facts } = this.#assignments
      this.#stop(running, { kind: 'fail', error, facts }, error)
    } else if (elapsedMs > stuckMs) {
      this.#isStuck = true
      this.#giveBack()
    }
  }

  /** Kills a worker that was assigned jobs and does not begin any. */
  #expectBegin(): void {
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

  /** Lets code that uses its abort signal end by itself; otherwise kills the worker. */
  #stop(one: StoppedJob, report: TaskReport, error: TuttiError): void {
    const { assignment, index, job } = one
    if (assignment.forcedReport(index) !== null) return
    const slot = assignment.slotOf(index)
    if (this.#listening !== slot || this.#isEnding) return this.#endFor(one, report)
    assignment.forcedEnd = { index, report }
    this.#giveBack()
    this.#link.abort({ abort: slot, reason: toErrorRecord(error) })
    this.#cancelAbort = this.#options.clock.after(abortGraceMs, () => {
      if (assignment.indexOf(job) !== -1) this.#endFor(one, report)
    })
  }

  #begin(): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#owner.begin()
  }

  /** Cancels all jobs and ends the worker. */
  close(reason: string): void {
    const { facts } = this.#assignments
    for (const assignment of this.#assignments.all) {
      for (let index = assignment.read; index < assignment.count; index++) {
        if (!this.#assignments.revoke(assignment, index)) continue
        assignment.end(index, { kind: 'cancel', reason })
      }
      assignment.finish()
    }
    this.#link.setBusy(true)
    this.#endWith(() => ({ kind: 'cancel', reason, facts }))
  }

  /** The worker has exited, or `killGraceMs` is over and it is left behind. */
  #exit(exit: WorkerExit): void {
    if (this.#hasExited) {
      this.#options.leftBehind.count--
      return
    }
    this.#hasExited = true
    this.#cancelGrace?.()
    this.#cancelAbort?.()
    this.#isEnding = true
    this.#read()
    const running = this.#assignments.running()
    const loss = this.#loss ?? lossOf(exit)
    const assignments = [...this.#assignments.all]
    const isUnwanted = this.#endReport === null
    const hasNothing = running === null && this.#assignments.unreported() === null
    const hasFailedToStart = isUnwanted && !this.#hasBegun && hasNothing
    if (isUnwanted && hasNothing && this.#isReady) this.#refuseUnreadable()
    const unbegun = hasFailedToStart ? [] : this.#assignments.revokeAll()
    if (isUnwanted || exit.leftBehind !== undefined) this.#noticeLoss(loss, running)
    this.#owner.end({ hasFailedToStart, assignments: hasFailedToStart ? assignments : [], loss })
    // A finished job whose result is missing is lost; later jobs may have complete results.
    let one = this.#assignments.unreported()
    while (one !== null) {
      this.#failLost(one, exit, loss)
      this.#assignments.read()
      one = this.#assignments.unreported()
    }
    if (running !== null) this.#failLost(running, exit, loss)
    if (unbegun.length > 0) this.#options.listener.giveBack(unbegun)
    if (!hasFailedToStart) for (const assignment of assignments) assignment.finish()
  }

  /** Fails a job that several workers did not begin, probably because they cannot read it. */
  #refuseUnreadable(): void {
    const next = this.#assignments.next()
    if (next === null) return
    const { unbegun } = this.#options
    const { assignment, index, job } = next
    const workers = (unbegun.get(job) ?? 0) + 1
    unbegun.set(job, workers)
    if (workers < maxUnbegun || !this.#assignments.revoke(assignment, index)) return
    const error = unreadableError(job, workers)
    assignment.end(index, { kind: 'fail', error, facts: this.#assignments.facts })
  }

  #failLost({ assignment, index, job }: RunningJob, exit: WorkerExit, loss: Loss): void {
    // If the job was asked to stop, its report stays the same even if its code ends the worker.
    const wanted = assignment.forcedReport(index) ?? this.#endReport?.(job)
    assignment.end(index, wanted ?? lostReport(job, this.#assignments.facts, exit, loss))
  }

  #noticeLoss({ reason }: Loss, running: RunningJob | null): void {
    const tasks = running === null ? [] : [running.job.uid]
    const { listener, nodeId } = this.#options
    listener.notice(toLossNotice({ worker_id: this.#id, reason, tasks }, nodeId))
  }

  #receive(message: WorkerMessage): void {
    if (this.#hasExited) return
    if (message.kind === 'ready') {
      this.#isReady = true
      this.#owner.ready()
    } else if (message.kind === 'update' || message.kind === 'listens') {
      return this.#takeUpdate(message)
    } else if (message.kind === 'dying') {
      this.#loss ??= { reason: message.reason, cause: fromErrorRecord(message.error) }
      this.#isEnding = true
      this.#giveBack()
    } else if (message.kind === 'value' || message.kind === 'failure') {
      this.#assignments.deliver(message)
    } else if (message.kind === 'unreadable') {
      this.#read()
      if (!this.#assignments.deliverUnreadable(message.error)) this.#kill()
    }
    this.#read()
  }

  #takeUpdate(message: Extract<WorkerMessage, { kind: 'update' | 'listens' }>): void {
    this.#read()
    const job = this.#assignments.findStarted(message.slot)?.job
    if (job === undefined) return
    if (message.kind === 'listens') {
      this.#listening = message.slot
      return
    }
    const { listener, nodeId } = this.#options
    listener.notice(toUpdateNotice(message.update, job.uid, nodeId), job)
  }

  #read(): void {
    if (!this.#assignments.read()) return
    this.#listening = null
    this.#cancelAbort?.()
    this.#cancelAbort = null
    this.#begin()
    this.#isStuck = false
    this.#owner.advance()
  }

  /**
   * Ends the worker because of one job. First revokes the jobs that have not begun. If the job has
   * ended meanwhile, keeps the worker, because it may be running another job.
   */
  #endFor({ assignment, index, job }: StoppedJob, report: TaskReport): void {
    const jobs = this.#assignments.revokeAll()
    if (this.#assignments.isAt(assignment, index)) {
      this.#endWith((one) => (one === job ? report : null))
    }
    this.#giveBack(jobs)
  }

  #endWith(endReport: EndReport): void {
    this.#isEnding = true
    this.#endReport ??= endReport
    this.#kill()
  }

  #kill(why?: 'unresponsive'): void {
    this.#link.kill(why)
    this.#cancelGrace ??= this.#options.clock.after(killGraceMs, () => this.#leaveBehind())
  }

  /** Stops waiting for a thread in a native call, which exits only when the call returns. */
  #leaveBehind(): void {
    const { leftBehind } = this.#options
    leftBehind.count++
    this.#loss = null
    this.#link.setBusy(false)
    this.#exit({ leftBehind: leftBehind.count })
  }

  #giveBack(jobs = this.#assignments.revokeAll()): void {
    if (jobs.length > 0) this.#options.listener.giveBack(jobs)
    for (const assignment of this.#assignments.all) assignment.finish()
  }
}
