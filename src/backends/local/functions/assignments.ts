/** The batches of one worker. Only `Assignments` reads their results from the shared `Mailbox`. */

import type { Clock } from '../../../foundation/clock.ts'
import type { AttemptFacts, Job, TaskReport } from '../../backend.ts'
import type { Batch, ExecutorListener } from '../executor.ts'
import type { JobDurations } from './batch-size.ts'
import type { ErrorRecord } from '../../../foundation/error-record.ts'
import { toJobError } from './job-failure.ts'
import { toMoment, readClocks, type ClockReading } from '../machine-time.ts'
import { bankCount, bankSize, type Mailbox } from './mailbox.ts'
import type { WorkerMessage } from './protocol.ts'

/**
 * A job that the worker has claimed. `startedMs` is `null` until the function is called. If the
 * worker is a process, `startedMs` and `importStartedMs` are `null` until it confirms the job.
 */
export interface RunningJob {
  readonly assignment: Assignment
  readonly index: number
  readonly job: Job
  readonly startedMs: number | null
  readonly importStartedMs: number | null
}

export interface AssignmentsOptions {
  readonly clock: Clock
  readonly durations: JobDurations
  readonly nodeId: string
}

type ResultMessage = Extract<WorkerMessage, { kind: 'value' | 'failure' }>

export class Assignments {
  readonly facts: AttemptFacts & { readonly workerId: string }
  readonly #options: AssignmentsOptions
  readonly #mailbox: Mailbox
  readonly #all: Assignment[] = []
  readonly #endMessages = new Map<number, ResultMessage>()
  #isReading = false
  #running: RunningJob | null = null
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

  add(assignment: Assignment): void {
    const first = this.#all[0]
    assignment.bank = first === undefined ? 0 : 1 - first.bank
    assignment.readCount = 0
    this.#mailbox.reset(assignment.bank, assignment.count)
    this.#all.push(assignment)
  }

  remove(assignment: Assignment): void {
    this.#all.splice(this.#all.indexOf(assignment), 1)
  }

  deliver(message: ResultMessage): void {
    this.#endMessages.set(message.slot, message)
  }

  read(): boolean {
    if (this.#isReading || this.#all.length === 0) return false
    this.#isReading = true
    const time = readClocks(this.#options.clock)
    let hasRead = false
    for (let first = this.#all[0]; first !== undefined; first = this.#all[0]) {
      hasRead = this.#readBatch(first, time) || hasRead
      if (first.readCount < first.count) break
      // This must precede `finish`, because the listener may assign the next batch.
      this.#all.shift()
      first.finish()
    }
    this.#isReading = false
    return hasRead
  }

  #readBatch(assignment: Assignment, time: ClockReading): boolean {
    const passed = this.#mailbox.finishedCount(assignment.bank)
    const readBefore = assignment.readCount
    while (assignment.readCount < passed) {
      const index = assignment.readCount
      if (!assignment.hasEnded(index)) {
        const slot = assignment.slotOf(index)
        const message = this.#mailbox.isSentAsMessage(slot) ? this.#endMessages.get(slot) : null
        if (message === undefined) break
        if (message !== null) this.#endMessages.delete(slot)
        this.#reportEnd(assignment, index, time, message)
      }
      assignment.readCount++
    }
    return assignment.readCount > readBefore
  }

  #reportEnd(
    assignment: Assignment,
    index: number,
    time: ClockReading,
    message: ResultMessage | null,
  ): void {
    const slot = assignment.slotOf(index)
    const { facts } = this
    const start = this.#mailbox.starts[slot] ?? 0
    const end = this.#mailbox.ends[slot] ?? 0
    // A job without a start time was never called, because its module could not be imported.
    if (!Number.isNaN(start)) {
      this.#options.durations.add(end - start)
      this.#reportStart(assignment, index, time, start)
    }
    const at = toMoment(time, end)
    const forced = assignment.forcedReport(index)
    if (forced !== null) assignment.end(index, { ...forced, at })
    else if (message?.kind === 'failure') {
      const error = toJobError(assignment.jobAt(index), message)
      assignment.end(index, { kind: 'fail', at, error, isThrown: true, facts })
    } else {
      const value = message === null ? this.#mailbox.read(slot) : message.value
      assignment.end(index, { kind: 'complete', at, value, facts })
    }
  }

  #reportStart(assignment: Assignment, index: number, time: ClockReading, start: number): void {
    if (assignment.hasStarted(index)) return
    const at = toMoment(time, start)
    const { workerId } = this.facts
    assignment.start(index, { kind: 'start', at, workerId, nodeId: this.#options.nodeId })
  }

  /**
   * Returns the job that the worker is running, and reports its start. A finished job whose result
   * is missing at two successive calls counts as running, because a getter in its result may never
   * return.
   */
  current(): RunningJob | null {
    const [known, unreported] = [this.#unreported, this.unreported()]
    this.#unreported = unreported
    const isStuck =
      unreported?.assignment === known?.assignment && unreported?.index === known?.index
    return unreported !== null && isStuck ? this.#withStartTimes(unreported) : this.running()
  }

  /** Returns the job that is claimed but not finished, and reports its start. */
  running(): RunningJob | null {
    const assignment = this.#all.find((one) => this.#mailbox.finishedCount(one.bank) < one.count)
    if (assignment === undefined) return null
    const index = this.#mailbox.finishedCount(assignment.bank)
    if (assignment.hasEnded(index) || !this.#mailbox.isClaimed(assignment.slotOf(index)))
      return null
    return this.#cacheRunning(assignment, index)
  }

  /** Caches the job, so that its start time is converted only once. */
  #cacheRunning(assignment: Assignment, index: number): RunningJob {
    const known = this.#running
    const isKnown = known?.assignment === assignment && known.index === index
    if (isKnown && known.startedMs !== null) return known
    const job = assignment.jobAt(index)
    this.#running = this.#withStartTimes({ ...noStartTimes, assignment, index, job })
    return this.#running
  }

  #withStartTimes(one: RunningJob): RunningJob {
    const start = this.#mailbox.starts[one.assignment.slotOf(one.index)] ?? Number.NaN
    const { importStart } = this.#mailbox
    const hasStarted = !Number.isNaN(start)
    if (!hasStarted && importStart === 0) return one
    const time = readClocks(this.#options.clock)
    if (!hasStarted) {
      return { ...one, importStartedMs: toMoment(time, importStart).monotonicMs }
    }
    this.#reportStart(one.assignment, one.index, time, start)
    return { ...one, startedMs: toMoment(time, start).monotonicMs }
  }

  unreported(): RunningJob | null {
    const assignment = this.#all[0]
    if (assignment === undefined) return null
    const index = assignment.readCount
    if (index >= this.#mailbox.finishedCount(assignment.bank)) return null
    return { ...noStartTimes, assignment, index, job: assignment.jobAt(index) }
  }

  /**
   * Returns the job that sent a message from this slot, and reports its start. The worker may
   * already run a later job. Returns `null` if the outcome of the sender is already reported.
   */
  findStarted(slot: number): RunningJob | null {
    const assignment = this.#all.find(({ bank }) => bank === Math.floor(slot / bankSize))
    const index = slot % bankSize
    if (assignment === undefined || assignment.hasEnded(index)) return null
    return this.#cacheRunning(assignment, index)
  }

  firstUnfinished(): RunningJob | null {
    for (const assignment of this.#all) {
      for (let index = assignment.readCount; index < assignment.count; index++) {
        if (assignment.hasEnded(index)) continue
        return { ...noStartTimes, assignment, index, job: assignment.jobAt(index) }
      }
    }
    return null
  }

  /**
   * Assigns an unreadable message to the first finished job that has no result, because messages
   * arrive in order. Returns `false` if there is no such job.
   */
  deliverUnreadable(error: ErrorRecord): boolean {
    const one = this.unreported()
    if (one === null) return false
    const slot = one.assignment.slotOf(one.index)
    this.deliver({ kind: 'failure', slot, failure: 'result', error, field: 'return_value' })
    return true
  }

  /** Whether the worker has finished the job, even if its end is not reported yet. */
  hasFinished(assignment: Assignment, index: number): boolean {
    return this.#mailbox.finishedCount(assignment.bank) > index
  }

  /**
   * Whether the worker still runs this job or sends its result. The caller must first revoke the
   * jobs that have not begun, so that the answer stays true until the job ends.
   */
  isStillAt(assignment: Assignment, index: number): boolean {
    const slot = assignment.slotOf(index)
    if (this.hasFinished(assignment, index) && !this.#mailbox.isSentAsMessage(slot)) return false
    const remaining = this.#all.slice(this.#all.indexOf(assignment))
    return remaining.every((one) => {
      for (let at = one === assignment ? index + 1 : 0; at < one.count; at++) {
        if (this.#mailbox.isClaimed(one.slotOf(at))) return false
      }
      return true
    })
  }

  revoke(assignment: Assignment, index: number): boolean {
    return !assignment.hasEnded(index) && this.#mailbox.revoke(assignment.slotOf(index))
  }

  revokeAll(): Job[] {
    const jobs: Job[] = []
    for (const assignment of this.#all) {
      for (let index = assignment.readCount; index < assignment.count; index++) {
        const job = this.revoke(assignment, index) ? assignment.withdraw(index) : undefined
        if (job !== undefined) jobs.push(job)
      }
    }
    return jobs
  }
}

const noStartTimes = { startedMs: null, importStartedMs: null } as const
const startedFlag = 1
const endedFlag = 2

/** One batch in a pool. Reports the outcome of each job exactly once. */
export class Assignment {
  readonly batch: Batch
  bank = 0
  readCount = 0
  /** The report for a job that was aborted. It replaces the result of the job's code. */
  forcedOutcome: { readonly index: number; readonly report: TaskReport } | null = null
  readonly #listener: ExecutorListener
  readonly #flags: Uint8Array
  #remaining: number
  #isFinished = false

  constructor(batch: Batch, listener: ExecutorListener) {
    this.batch = batch
    this.#listener = listener
    this.#remaining = batch.jobs.length
    this.#flags = new Uint8Array(this.#remaining)
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

  /** Returns the index of the job, or -1 if the batch does not contain it or it has ended. */
  indexOf(job: Job): number {
    const index = this.batch.jobs.indexOf(job)
    return index !== -1 && this.hasEnded(index) ? -1 : index
  }

  forcedReport(index: number): TaskReport | null {
    return this.forcedOutcome?.index === index ? this.forcedOutcome.report : null
  }

  hasEnded(index: number): boolean {
    return ((this.#flags[index] ?? endedFlag) & endedFlag) !== 0
  }

  get isDone(): boolean {
    return this.#remaining === 0
  }

  /** Whether the start of the job was reported, or the job has ended. */
  hasStarted(index: number): boolean {
    return (this.#flags[index] ?? endedFlag) !== 0
  }

  start(index: number, report: Extract<TaskReport, { kind: 'start' }>): void {
    if (this.hasStarted(index)) return
    this.#flags[index] = startedFlag
    this.#listener.report(this.jobAt(index), report)
  }

  end(index: number, report: TaskReport): void {
    if (this.#markEnded(index)) this.#listener.report(this.jobAt(index), report)
  }

  endAll(toReport: (job: Job) => TaskReport): void {
    for (let index = 0; index < this.count; index++) {
      if (!this.hasEnded(index)) this.end(index, toReport(this.jobAt(index)))
    }
    this.finish()
  }

  withdraw(index: number): Job | undefined {
    return this.#markEnded(index) ? this.jobAt(index) : undefined
  }

  withdrawAll(): Job[] {
    const jobs = Array.from({ length: this.count }, (_, index) => this.withdraw(index))
    return jobs.filter((job) => job !== undefined)
  }

  /** Reports the end of the batch once, if all its jobs have ended. */
  finish(): void {
    if (this.#remaining > 0 || this.#isFinished) return
    this.#isFinished = true
    this.#listener.finish(this.batch)
  }

  #markEnded(index: number): boolean {
    if (this.hasEnded(index)) return false
    this.#flags[index] = endedFlag
    this.#remaining--
    return true
  }
}
