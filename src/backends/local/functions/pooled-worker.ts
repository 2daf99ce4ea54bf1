/** One worker from its start to its exit, and what becomes of the jobs that it was given. */

import { WorkerLost } from '../../../events/library-events.ts'
import type { Job, TaskReport } from '../../backend.ts'
import { toEventNotice } from '../../backend.ts'
import type { ExecutorListener } from '../executor.ts'
import type { Assignment } from './assignment.ts'
import { Assignments, type AssignmentsOptions, type RunningJob } from './assignments.ts'
import { argumentsError, BatchMessages } from './batch-message.ts'
import { fromErrorRecord } from '../../../foundation/error-record.ts'
import { type Loss, lossOf, lostReport, timeoutError } from './job-failure.ts'
import type { BatchMessage, WorkerMessage } from './protocol.ts'
import type { WorkerExit, WorkerLink, WorkerLinkListener } from './worker-link.ts'

export interface PooledWorkerOptions extends AssignmentsOptions {
  readonly listener: ExecutorListener
  /** Starts the worker; may throw. */
  connect(workerId: string, listener: WorkerLinkListener): WorkerLink
}

/** Whom a worker serves. */
export interface WorkerOwner {
  /** Called once, before anybody is told of the jobs. */
  end(end: WorkerEnd): void
  /** Jobs have ended: there may be room for another batch. */
  advance(): void
}

/** What a worker leaves to its owner. */
export interface WorkerEnd {
  /** It ended by itself and never began a job: whatever it had can go to the next. */
  readonly hasFailedToStart: boolean
  readonly assignments: readonly Assignment[]
  readonly loss: Loss
}

/** Jobs behind one that runs for longer than this go back, for other workers. */
const stuckMs = 25

type Verdict = (job: Job) => TaskReport

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
  /** What is to be reported of the job for which the worker is ended. */
  #verdict: Verdict | null = null
  /** What the worker said about its own end. */
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

  /** It has begun a job, so it can be started. */
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

  /** All jobs are answered for, though it may not have passed them. */
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

  /** Looks after what no message tells: starts, time-outs, and jobs that wait behind a long one. */
  poll(): void {
    this.#read()
    // Not as soon as it is idle: one task after another would change it each time.
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

  /** The worker is gone, or was waited for long enough. */
  exit(exit: WorkerExit): void {
    if (this.#hasExited) return
    this.#hasExited = true
    this.#isEnding = true
    this.#read()
    const running = this.#assignments.running()
    const loss = this.#loss ?? lossOf(exit)
    const assignments = [...this.#assignments.all]
    const isUnwanted = this.#verdict === null
    const hasNothing = running === null && this.#assignments.untold() === null
    const hasFailedToStart = isUnwanted && !this.#hasBegun && hasNothing
    const unbegun = hasFailedToStart ? [] : this.#assignments.revokeAll()
    this.#owner.end({ hasFailedToStart, assignments: hasFailedToStart ? assignments : [], loss })
    // What it ended without having told, and what ended behind that.
    for (let one = this.#assignments.untold(); one !== null; one = this.#assignments.untold()) {
      this.#blame(one, exit, loss)
      this.#assignments.read()
    }
    if (running !== null) this.#blame(running, exit, loss)
    if (isUnwanted) this.#tellLoss(loss, running)
    if (unbegun.length > 0) this.#options.listener.giveBack(unbegun)
    if (!hasFailedToStart) for (const assignment of assignments) assignment.finish()
  }

  #blame({ assignment, index, job }: RunningJob, exit: WorkerExit, loss: Loss): void {
    const { facts } = this.#assignments
    assignment.end(index, this.#verdict?.(job) ?? lostReport(job, facts, exit, loss))
  }

  #tellLoss({ reason }: Loss, running: RunningJob | null): void {
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
      this.#assignments.tell(message)
    } else if (message.kind === 'unreadable') {
      this.#read()
      if (!this.#assignments.tellUnreadable(message.error)) this.#link.kill()
    }
    this.#read()
  }

  #read(): void {
    if (!this.#assignments.read()) return
    this.#hasBegun = true
    this.#isStuck = false
    this.#owner.advance()
  }

  /** Takes back first what has not begun, so that nothing else can begin and be lost. */
  #end(verdict: Verdict): void {
    this.#isEnding = true
    this.#verdict ??= verdict
    this.#giveBack()
    this.#link.kill()
  }

  #giveBack(): void {
    const jobs = this.#assignments.revokeAll()
    if (jobs.length > 0) this.#options.listener.giveBack(jobs)
    for (const assignment of this.#assignments.all) assignment.finish()
  }
}
