/** The batches that one worker holds. The only reader of their results in the worker's mailbox. */

import type { Clock } from '../../../foundation/clock.ts'
import type { AttemptFacts, Job, TaskReport } from '../../backend.ts'
import type { Batch, ExecutorListener } from '../executor.ts'
import type { JobDurations } from './batch-size.ts'
import type { ErrorRecord } from '../../../foundation/error-record.ts'
import { failureOf } from './job-failure.ts'
import { momentOf, readTime, type TimeReading } from '../machine-time.ts'
import { bankCount, bankSize, type Mailbox } from './mailbox.ts'
import type { WorkerMessage } from './protocol.ts'

/**
 * A job that the worker has claimed. `sinceMs` is `null` until the function is called. Both times
 * are `null` for a job that was sent to a process and is not confirmed yet.
 */
export interface RunningJob {
  readonly assignment: Assignment
  readonly index: number
  readonly job: Job
  readonly sinceMs: number | null
  readonly importingSinceMs: number | null
}

export interface AssignmentsOptions {
  readonly clock: Clock
  readonly durations: JobDurations
  readonly nodeId: string
}

type EndMessage = Extract<WorkerMessage, { kind: 'value' | 'failure' }>

export class Assignments {
  readonly facts: AttemptFacts & { readonly workerId: string }
  readonly #options: AssignmentsOptions
  readonly #mailbox: Mailbox
  readonly #all: Assignment[] = []
  readonly #endMessages = new Map<number, EndMessage>()
  #isReading = false
  #running: RunningJob | null = null
  /** The finished job whose result was still missing at the last poll. */
  #unreported: RunningJob | null = null

  constructor(mailbox: Mailbox, workerId: string, options: AssignmentsOptions) {
    this.#mailbox = mailbox
    this.#options = options
    this.facts = Object.freeze({ workerId })
  }

  get all(): readonly Assignment[] {
    return this.#all
  }

  get isEmpty(): boolean {
    return this.#all.length === 0
  }

  get isFull(): boolean {
    return this.#all.length >= bankCount
  }

  /** Places the batch into a free bank of the mailbox. */
  add(assignment: Assignment): void {
    const first = this.#all[0]
    assignment.bank = first === undefined ? 0 : 1 - first.bank
    assignment.read = 0
    this.#mailbox.reset(assignment.bank, assignment.count)
    this.#all.push(assignment)
  }

  remove(assignment: Assignment): void {
    this.#all.splice(this.#all.indexOf(assignment), 1)
  }

  /** Keeps the message about a job's end until `read` reaches that job. */
  deliver(message: EndMessage): void {
    this.#endMessages.set(message.slot, message)
  }

  /** Reports the jobs that have ended since the last call; `false` if there were none. */
  read(): boolean {
    if (this.#isReading || this.#all.length === 0) return false
    this.#isReading = true
    const time = readTime(this.#options.clock)
    let hasRead = false
    for (let first = this.#all[0]; first !== undefined; first = this.#all[0]) {
      hasRead = this.#readBatch(first, time) || hasRead
      if (first.read < first.count) break
      // Removed before `finish`, because the listener may assign the next batch.
      this.#all.shift()
      first.finish()
    }
    this.#isReading = false
    return hasRead
  }

  #readBatch(assignment: Assignment, time: TimeReading): boolean {
    const passed = this.#mailbox.passed(assignment.bank)
    const before = assignment.read
    while (assignment.read < passed) {
      const index = assignment.read
      if (!assignment.isOver(index)) {
        const slot = assignment.slotOf(index)
        const message = this.#mailbox.isLeftToMessage(slot) ? this.#endMessages.get(slot) : null
        // The message about this job's end has not arrived yet.
        if (message === undefined) break
        if (message !== null) this.#endMessages.delete(slot)
        this.#reportEnd(assignment, index, time, message)
      }
      assignment.read++
    }
    return assignment.read > before
  }

  #reportEnd(
    assignment: Assignment,
    index: number,
    time: TimeReading,
    message: EndMessage | null,
  ): void {
    const slot = assignment.slotOf(index)
    const { facts } = this
    const start = this.#mailbox.starts[slot] ?? 0
    const end = this.#mailbox.ends[slot] ?? 0
    // Without a start time, the function was never called: its module could not be imported.
    if (!Number.isNaN(start)) {
      this.#options.durations.add(end - start)
      this.#reportStart(assignment, index, time, start)
    }
    const at = momentOf(time, end)
    const forced = assignment.forcedReport(index)
    if (forced !== null) assignment.end(index, { ...forced, at })
    else if (message?.kind === 'failure') {
      const error = failureOf(assignment.jobAt(index), message)
      assignment.end(index, { kind: 'fail', at, error, isThrown: true, facts })
    } else {
      const value = message === null ? this.#mailbox.read(slot) : message.value
      assignment.end(index, { kind: 'complete', at, value, facts })
    }
  }

  #reportStart(assignment: Assignment, index: number, time: TimeReading, start: number): void {
    assignment.start(index, () => ({
      kind: 'start',
      at: momentOf(time, start),
      workerId: this.facts.workerId,
      nodeId: this.#options.nodeId,
    }))
  }

  /**
   * Returns the job that the worker is busy with, and reports its start. This may be a finished job
   * whose result is missing at a second poll, because a getter in the result may never return.
   */
  current(): RunningJob | null {
    const [known, unreported] = [this.#unreported, this.unreported()]
    this.#unreported = unreported
    const isStuck =
      unreported?.assignment === known?.assignment && unreported?.index === known?.index
    return unreported !== null && isStuck ? this.#withStart(unreported) : this.running()
  }

  /** Returns the job that the worker has begun and not finished, and reports its start. */
  running(): RunningJob | null {
    const assignment = this.#all.find((one) => this.#mailbox.passed(one.bank) < one.count)
    if (assignment === undefined) return null
    const index = this.#mailbox.passed(assignment.bank)
    if (assignment.isOver(index) || !this.#mailbox.hasBegun(assignment.slotOf(index))) return null
    return this.#begun(assignment, index)
  }

  /** Caches the job once its start time is known, so that the time is converted only once. */
  #begun(assignment: Assignment, index: number): RunningJob {
    const known = this.#running
    const isKnown = known?.assignment === assignment && known.index === index
    if (isKnown && known.sinceMs !== null) return known
    const job = assignment.jobAt(index)
    this.#running = this.#withStart({ ...notStarted, assignment, index, job })
    return this.#running
  }

  #withStart(one: RunningJob): RunningJob {
    const start = this.#mailbox.starts[one.assignment.slotOf(one.index)] ?? Number.NaN
    const { importingSince } = this.#mailbox
    const hasStarted = !Number.isNaN(start)
    if (!hasStarted && importingSince === 0) return one
    const time = readTime(this.#options.clock)
    if (!hasStarted) {
      return { ...one, importingSinceMs: momentOf(time, importingSince).monotonicMs }
    }
    this.#reportStart(one.assignment, one.index, time, start)
    return { ...one, sinceMs: momentOf(time, start).monotonicMs }
  }

  /** The job that the worker has finished, but whose result message has not arrived. */
  unreported(): RunningJob | null {
    const assignment = this.#all[0]
    if (assignment === undefined) return null
    const index = assignment.read
    if (index >= this.#mailbox.passed(assignment.bank)) return null
    return { ...notStarted, assignment, index, job: assignment.jobAt(index) }
  }

  /**
   * Returns the job that sent a message from this slot, and reports its start; `null` if it is
   * over. The worker's position is not read, because the worker may already be past this slot.
   */
  findStarted(slot: number): RunningJob | null {
    const assignment = this.#all.find(({ bank }) => bank === Math.floor(slot / bankSize))
    const index = slot % bankSize
    if (assignment === undefined || assignment.isOver(index)) return null
    return this.#begun(assignment, index)
  }

  /** The first job that is not over. */
  next(): RunningJob | null {
    for (const assignment of this.#all) {
      for (let index = assignment.read; index < assignment.count; index++) {
        if (assignment.isOver(index)) continue
        return { ...notStarted, assignment, index, job: assignment.jobAt(index) }
      }
    }
    return null
  }

  /**
   * An unreadable message arrived. Messages arrive in order, so it belongs to the first finished
   * job without a message; `false` if there is no such job.
   */
  deliverUnreadable(error: ErrorRecord): boolean {
    const one = this.unreported()
    if (one === null) return false
    const slot = one.assignment.slotOf(one.index)
    this.deliver({ kind: 'failure', slot, failure: 'result', error, field: 'return_value' })
    return true
  }

  /** Whether the worker has finished the job, even if its end is not reported yet. */
  hasPassed(assignment: Assignment, index: number): boolean {
    return this.#mailbox.passed(assignment.bank) > index
  }

  /**
   * Whether the worker still runs this job or sends its result, and has begun no later one. If all
   * jobs that had not begun were revoked before the call, this holds until the job ends.
   */
  isAt(assignment: Assignment, index: number): boolean {
    const slot = assignment.slotOf(index)
    if (this.hasPassed(assignment, index) && !this.#mailbox.isLeftToMessage(slot)) return false
    const behind = this.#all.slice(this.#all.indexOf(assignment))
    return behind.every((one) => {
      for (let at = one === assignment ? index + 1 : 0; at < one.count; at++) {
        if (this.#mailbox.hasBegun(one.slotOf(at))) return false
      }
      return true
    })
  }

  /** Revokes a job that has not begun; `false` if it has begun or is over. */
  revoke(assignment: Assignment, index: number): boolean {
    return !assignment.isOver(index) && this.#mailbox.revoke(assignment.slotOf(index))
  }

  /** Revokes and returns all jobs that have not begun. */
  revokeAll(): Job[] {
    const jobs: Job[] = []
    for (const assignment of this.#all) {
      for (let index = assignment.read; index < assignment.count; index++) {
        const job = this.revoke(assignment, index) ? assignment.take(index) : undefined
        if (job !== undefined) jobs.push(job)
      }
    }
    return jobs
  }
}

const notStarted = { sinceMs: null, importingSinceMs: null } as const
const started = 1
const over = 2

/** One batch in a pool. Reports each job's outcome exactly once, whatever the order of events. */
export class Assignment {
  readonly batch: Batch
  /** The bank of the worker's mailbox that the batch occupies. */
  bank = 0
  /** Jobs before this index have been read from the mailbox. */
  read = 0
  /** The report for a job whose code was asked to stop; it replaces whatever the code returns. */
  forcedEnd: { readonly index: number; readonly report: TaskReport } | null = null
  readonly #listener: ExecutorListener
  readonly #flags: Uint8Array
  #left: number
  #isFinished = false

  constructor(batch: Batch, listener: ExecutorListener) {
    this.batch = batch
    this.#listener = listener
    this.#left = batch.jobs.length
    this.#flags = new Uint8Array(this.#left)
  }

  get count(): number {
    return this.batch.jobs.length
  }

  slotOf(index: number): number {
    return this.bank * bankSize + index
  }

  jobAt(index: number): Job {
    const job = this.batch.jobs[index]
    if (job === undefined) throw new RangeError(`there is no job ${index} in the batch`)
    return job
  }

  /** The index of the job, or -1 if it is not in this batch or is over. */
  indexOf(job: Job): number {
    const index = this.batch.jobs.indexOf(job)
    return index !== -1 && this.isOver(index) ? -1 : index
  }

  forcedReport(index: number): TaskReport | null {
    return this.forcedEnd?.index === index ? this.forcedEnd.report : null
  }

  isOver(index: number): boolean {
    return ((this.#flags[index] ?? over) & over) !== 0
  }

  /** Whether all jobs are over. */
  get isDone(): boolean {
    return this.#left === 0
  }

  /** Reports the start of a job, unless it has been reported. */
  start(index: number, report: () => Extract<TaskReport, { kind: 'start' }>): void {
    const flags = this.#flags[index] ?? over
    if (flags !== 0) return
    this.#flags[index] = started
    this.#listener.report(this.jobAt(index), report())
  }

  /** Reports the end of a job, unless it is over. */
  end(index: number, report: TaskReport): void {
    if (this.#close(index)) this.#listener.report(this.jobAt(index), report)
  }

  /** Reports the end of all jobs that are not over, then the end of the batch. */
  endAll(toReport: (job: Job) => TaskReport): void {
    for (let index = 0; index < this.count; index++) {
      if (!this.isOver(index)) this.end(index, toReport(this.jobAt(index)))
    }
    this.finish()
  }

  /** Takes a job that has not begun out of the batch, so that it can be given back. */
  take(index: number): Job | undefined {
    return this.#close(index) ? this.jobAt(index) : undefined
  }

  takeAll(): Job[] {
    const jobs = Array.from({ length: this.count }, (_, index) => this.take(index))
    return jobs.filter((job) => job !== undefined)
  }

  /** Reports that the batch has ended, once all its jobs are over. */
  finish(): void {
    if (this.#left > 0 || this.#isFinished) return
    this.#isFinished = true
    this.#listener.finish(this.batch)
  }

  #close(index: number): boolean {
    if (this.isOver(index)) return false
    this.#flags[index] = over
    this.#left--
    return true
  }
}
