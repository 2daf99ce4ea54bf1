/**
 * Runs closures on this process's event loop, with a time limit, an abort signal and progress.
 * Reports only the first outcome of each. The caller decides how many run at a time.
 */

import type { Clock } from '../foundation/clock.ts'
import { TimeoutError } from '../foundation/errors.ts'
import { RunningTask, runInTask, type TaskHost } from '../foundation/task-context.ts'
import { TaskCanceledError } from '../foundation/task-errors.ts'
import { BudgetedQueue, type TurnBudget } from '../runtime/turn-budget.ts'
import type { Job, Notice, TaskReport } from './backend.ts'
import { toUpdateNotice, toUpdateRecord } from './task-updates.ts'

export interface ClosureRunsParts<T> {
  readonly nodeId: string
  readonly workerId: string
  readonly clock: Clock
  readonly budget: TurnBudget
  /** The word for a job in error messages, such as `task`. */
  readonly noun: string
  readonly closureOf: (job: Job) => (() => unknown) | null
  readonly report: (job: Job, report: TaskReport) => void
  readonly notice: (notice: Notice, job: Job) => void
  /** A closure returned after its job had ended. */
  readonly resultDropped: (job: Job) => void
  /** A closure returned while its job was still running. The job's end follows. */
  readonly onReturned?: (run: ClosureRun<T>) => void
  /** The end of the job was reported. */
  readonly onEnded?: (run: ClosureRun<T>) => void
  /** The closure awaits another task for the first time. */
  readonly onWait?: (run: ClosureRun<T>) => void
}

/** One attempt. `context` is any value that the caller attaches. */
export class ClosureRun<T> extends RunningTask {
  readonly job: Job
  readonly context: T
  startedMs = 0
  /** The value of `ClosureRuns.#heldMs` at this closure's first `await`. */
  heldMs = 0
  hasWaited = false
  cancelTimer: () => void = () => {}

  constructor(job: Job, context: T, host: TaskHost<ClosureRun<T>>) {
    super(job.uid, job.attempt, host)
    this.job = job
    this.context = context
  }
}

/**
 * A closure cannot be stopped: if its attempt ends early, the closure runs on and its result is
 * dropped.
 */
export class ClosureRuns<T> {
  readonly #parts: ClosureRunsParts<T>
  readonly #live = new Map<Job, ClosureRun<T>>()
  readonly #ready: BudgetedQueue<Job>
  readonly #host: TaskHost<ClosureRun<T>>
  /** How long all closures together have blocked the loop before their first `await`. */
  #heldMs = 0

  constructor(parts: ClosureRunsParts<T>) {
    this.#parts = parts
    this.#host = {
      clock: parts.clock,
      update: ({ job }, update) => {
        parts.notice(toUpdateNotice(toUpdateRecord(update), job.uid, parts.nodeId), job)
      },
      waits: (run) => this.#wait(run),
    }
    this.#ready = new BudgetedQueue(parts.budget, (jobs) => jobs.forEach((job) => this.#begin(job)))
  }

  /** The number of jobs that have not ended. */
  get size(): number {
    return this.#live.size
  }

  /** The job begins in a microtask, never within the call that submits it. */
  add(job: Job, context: T): void {
    this.#live.set(job, new ClosureRun(job, context, this.#host))
    this.#ready.add(job)
  }

  cancel(job: Job, reason: string): void {
    this.#end(job, { kind: 'cancel', reason, facts: { workerId: this.#parts.workerId } })
  }

  cancelAll(reason: string): void {
    for (const job of this.#live.keys()) this.cancel(job, reason)
  }

  /**
   * The seconds since the run's start, minus the time for which closures that began later blocked
   * the loop.
   */
  secondsOf({ startedMs, heldMs }: ClosureRun<T>): number {
    return (this.#parts.clock.monotonicMs() - startedMs - (this.#heldMs - heldMs)) / 1000
  }

  #begin(job: Job): void {
    const run = this.#live.get(job)
    if (run === undefined) return
    const { clock, nodeId, workerId } = this.#parts
    run.startedMs = clock.monotonicMs()
    run.cancelTimer = this.#armTimeout(job)
    this.#parts.report(job, { kind: 'start', workerId, nodeId })
    // The listener may have canceled the job.
    if (!this.#live.has(job)) return
    void this.#run(run).then(
      (value) => this.#returned(job, { kind: 'complete', value }),
      (error: unknown) => this.#returned(job, { kind: 'fail', error, isThrown: true }),
    )
    this.#heldMs += clock.monotonicMs() - run.startedMs
    run.heldMs = this.#heldMs
  }

  /**
   * Awaits the closure inside the task's context: if the closure returns another task, waiting for
   * it frees the slot.
   */
  #run(run: ClosureRun<T>): Promise<unknown> {
    const begin = async (): Promise<unknown> => {
      const closure = this.#parts.closureOf(run.job)
      if (closure === null) throw new TypeError(`${run.uid} is no function`)
      return await closure()
    }
    return runInTask(run, begin)
  }

  #armTimeout(job: Job): () => void {
    const { clock, noun } = this.#parts
    const seconds = job.spec.timeoutSeconds
    if (seconds === null) return () => {}
    const error = new TimeoutError(`${noun} ${job.uid} ran longer than ${seconds} s`)
    return clock.after(seconds * 1000, () => this.#end(job, { kind: 'fail', error }))
  }

  #returned(job: Job, report: TaskReport): void {
    const run = this.#live.get(job)
    if (run === undefined) return this.#parts.resultDropped(job)
    this.#parts.onReturned?.(run)
    this.#end(job, report)
  }

  /** Reports the outcome of a job, unless one was reported before. */
  #end(job: Job, report: TaskReport): void {
    const run = this.#live.get(job)
    if (run === undefined) return
    run.cancelTimer()
    // Closed before the report, because `close` sends progress that was held back.
    run.close()
    this.#live.delete(job)
    this.#parts.report(job, report)
    this.#parts.onEnded?.(run)
    if (report.kind === 'cancel') run.abort(new TaskCanceledError(job.uid, report.reason))
    else if (report.kind === 'fail') run.abort(report.error)
  }

  #wait(run: ClosureRun<T>): void {
    if (run.hasWaited || !this.#live.has(run.job)) return
    run.hasWaited = true
    this.#parts.onWait?.(run)
  }
}
