/** One worker from its start to its exit, and the reports of the jobs that it was given. */

import { WorkerLost } from '../../../events/library-events.ts'
import type { Job, TaskReport } from '../../backend.ts'
import { toEventNotice } from '../../backend.ts'
import type { ExecutorListener } from '../executor.ts'
import {
  type Assignment,
  Assignments,
  type AssignmentsOptions,
  type RunningJob,
} from './assignments.ts'
import { argumentsError, BatchMessages } from './batch-message.ts'
import { fromErrorRecord } from '../../../foundation/error-record.ts'
import { type Loss, lossOf, lostReport, timeoutError } from './job-failure.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener } from './protocol.ts'

export interface PooledWorkerOptions extends AssignmentsOptions {
  readonly listener: ExecutorListener
  /** Starts the worker; may throw. */
  connect(workerId: string, listener: WorkerLinkListener): WorkerLink
}

/** The handle that owns the worker. */
export interface WorkerOwner {
  /** Called once at its exit, before its jobs are reported. */
  end(end: WorkerEnd): void
  /** Jobs have ended: there may be room for another batch. */
  advance(): void
}

/** The exit of a worker, and the batches that its owner gets back. */
export interface WorkerEnd {
  /** It exited unasked and never began a job: the next worker can take all its batches. */
  readonly hasFailedToStart: boolean
  readonly assignments: readonly Assignment[]
  readonly loss: Loss
}

/** Jobs behind one that runs longer than this are given back, for other workers. */
const stuckMs = 25

type EndReport = (job: Job) => TaskReport

export class PooledWorker {
  readonly #id: string
  readonly #options: PooledWorkerOptions
  readonly #owner: WorkerOwner
  readonly #link: WorkerLink
  readonly #assignments: Assignments
  readonly #messages = new BatchMessages()
  #hasBegun = false
  #isStuck = false
  #isEnding = false
  #hasExited = false
  /** The report of the job for which the worker is killed. */
  #endReport: EndReport | null = null
  /** The reason that the worker itself gave for its exit. */
  #loss: Loss | null = null

  constructor(id: string, options: PooledWorkerOptions, owner: WorkerOwner) {
    this.#id = id
    this.#options = options
    this.#owner = owner
    this.#link = options.connect(id, {
      message: (message) => this.#receive(message),
      exit: (exit) => this.exit(exit),
    })
    this.#assignments = new Assignments(this.#link.mailbox, id, options)
  }

  /** It has begun a job, so its start has succeeded. */
  get hasBegun(): boolean {
    return this.#hasBegun
  }

  /** It begins nothing more and is about to exit. */
  get isEnding(): boolean {
    return this.#isEnding
  }

  get isFull(): boolean {
    return this.#assignments.isFull
  }

  /** All jobs are reported, though the worker may not have passed them yet. */
  get isDone(): boolean {
    return this.#assignments.all.every((one) => one.isDone)
  }

  /** It has passed all jobs. */
  get isEmpty(): boolean {
    return this.#assignments.isEmpty
  }

  /** Whether a batch may wait behind the one that runs. */
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

  /** `false` when the job is not here. */
  cancel(job: Job, reason: string): boolean {
    for (const assignment of this.#assignments.all) {
      const index = assignment.indexOf(job)
      if (index === -1) continue
      if (this.#assignments.revoke(assignment, index)) {
        assignment.end(index, { kind: 'cancel', reason })
        assignment.finish()
      } else if (!this.#assignments.hasPassed(assignment, index)) {
        const { facts } = this.#assignments
        this.#end(() => ({ kind: 'cancel', reason, facts }))
      }
      return true
    }
    return false
  }

  /** Finds what no message reports: starts, time-outs, and jobs that wait behind a long one. */
  poll(): void {
    this.#read()
    // Not as soon as it is idle: with one task after another, it would change for each task.
    if (this.#assignments.isEmpty && !this.#isEnding) this.#link.setBusy(false)
    const running = this.#assignments.current()
    if (running === null) return
    this.#hasBegun = true
    if (running.sinceMs === null || this.#isEnding) return
    const elapsedMs = this.#options.clock.monotonicMs() - running.sinceMs
    const { timeoutSeconds } = running.job.spec
    if (timeoutSeconds !== null && elapsedMs >= timeoutSeconds * 1000) {
      const { facts } = this.#assignments
      this.#end((job) => ({ kind: 'fail', error: timeoutError(job, timeoutSeconds), facts }))
    } else if (elapsedMs > stuckMs) {
      this.#isStuck = true
      this.#giveBack()
    }
  }

  /** Cancels everything and ends the worker. */
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
    this.#end(() => ({ kind: 'cancel', reason, facts }))
  }

  /** The worker has exited, or its exit has been awaited long enough. */
  exit(exit: WorkerExit): void {
    if (this.#hasExited) return
    this.#hasExited = true
    this.#isEnding = true
    this.#read()
    const running = this.#assignments.running()
    const loss = this.#loss ?? lossOf(exit)
    const assignments = [...this.#assignments.all]
    const isUnwanted = this.#endReport === null
    const hasNothing = running === null && this.#assignments.unreported() === null
    const hasFailedToStart = isUnwanted && !this.#hasBegun && hasNothing
    const unbegun = hasFailedToStart ? [] : this.#assignments.revokeAll()
    this.#owner.end({ hasFailedToStart, assignments: hasFailedToStart ? assignments : [], loss })
    // Jobs that it finished without a report, and those that it finished after them.
    for (
      let one = this.#assignments.unreported();
      one !== null;
      one = this.#assignments.unreported()
    ) {
      this.#failLost(one, exit, loss)
      this.#assignments.read()
    }
    if (running !== null) this.#failLost(running, exit, loss)
    if (isUnwanted) this.#noticeLoss(loss, running)
    if (unbegun.length > 0) this.#options.listener.giveBack(unbegun)
    if (!hasFailedToStart) for (const assignment of assignments) assignment.finish()
  }

  #failLost({ assignment, index, job }: RunningJob, exit: WorkerExit, loss: Loss): void {
    const { facts } = this.#assignments
    assignment.end(index, this.#endReport?.(job) ?? lostReport(job, facts, exit, loss))
  }

  #noticeLoss({ reason }: Loss, running: RunningJob | null): void {
    const tasks = running === null ? [] : [running.job.uid]
    const { listener, nodeId } = this.#options
    const fields = { worker_id: this.#id, reason, tasks }
    listener.notice(toEventNotice(WorkerLost, fields, { nodeId }))
  }

  #receive(message: WorkerMessage): void {
    if (message.kind === 'dying') {
      this.#loss ??= { reason: message.reason, cause: fromErrorRecord(message.error) }
      this.#isEnding = true
      this.#giveBack()
    } else if (message.kind === 'value' || message.kind === 'failure') {
      this.#assignments.deliver(message)
    } else if (message.kind === 'unreadable') {
      this.#read()
      if (!this.#assignments.deliverUnreadable(message.error)) this.#link.kill()
    }
    this.#read()
  }

  #read(): void {
    if (!this.#assignments.read()) return
    this.#hasBegun = true
    this.#isStuck = false
    this.#owner.advance()
  }

  /** Takes back jobs that have not begun first, so that none of them begins and is lost. */
  #end(endReport: EndReport): void {
    this.#isEnding = true
    this.#endReport ??= endReport
    this.#giveBack()
    this.#link.kill()
  }

  #giveBack(): void {
    const jobs = this.#assignments.revokeAll()
    if (jobs.length > 0) this.#options.listener.giveBack(jobs)
    for (const assignment of this.#assignments.all) assignment.finish()
  }
}
