/** Runs closures on this event loop, with a time limit. Reports the first outcome of each run. */

import type { Clock } from '../foundation/clock.ts'
import { TimeoutError } from '../foundation/errors.ts'
import { RunningTask, runInTask, type TaskHost } from '../foundation/task-context.ts'
import { TaskCanceledError } from '../foundation/task-errors.ts'
import { BudgetedQueue, type TurnBudget } from '../runtime/turn-budget.ts'
import type { Job, Notice, TaskReport } from './backend.ts'
import { toUpdateNotice, toUpdateRecord } from './task-updates.ts'

export interface ClosureRunsOptions<T> {
  readonly nodeId: string
  readonly workerId: string
  readonly clock: Clock
  readonly budget: TurnBudget
  /** The word for a job in error messages, such as `task`. */
  readonly jobNoun: string
  readonly closureOf: (job: Job) => (() => unknown) | null
  readonly report: (job: Job, report: TaskReport) => void
  readonly notice: (notice: Notice, job: Job) => void
  readonly onResultDropped: (job: Job) => void
  /** Called when a closure returns in time, before its outcome is reported. */
  readonly onReturned?: (run: ClosureRun<T>) => void
  readonly onEnded?: (run: ClosureRun<T>) => void
  readonly onWait?: (run: ClosureRun<T>) => void
}

/** One run of a closure. `context` is any value that the caller attaches. */
export class ClosureRun<T> extends RunningTask {
  readonly job: Job
  readonly context: T
  startedMs = 0
  /** The value of `ClosureRuns.#blockedMs` at this closure's first `await`. */
  blockedMs = 0
  hasWaited = false
  cancelTimer: () => void = () => {}

  constructor(job: Job, context: T, host: TaskHost<ClosureRun<T>>) {
    super(job.uid, job.attempt, host)
    this.job = job
    this.context = context
  }
}

/** A closure cannot be stopped. If its attempt ends early, its later result is dropped. */
export class ClosureRuns<T> {
  readonly #options: ClosureRunsOptions<T>
  readonly #live = new Map<Job, ClosureRun<T>>()
  readonly #ready: BudgetedQueue<Job>
  readonly #host: TaskHost<ClosureRun<T>>
  /** How long all closures together blocked the event loop before their first `await`. */
  #blockedMs = 0

  constructor(parts: ClosureRunsOptions<T>) {
    this.#options = parts
    this.#host = {
      clock: parts.clock,
      update: ({ job }, update) => {
        parts.notice(toUpdateNotice(toUpdateRecord(update), job.uid, parts.nodeId), job)
      },
      waits: (run) => this.#handleWait(run),
    }
    this.#ready = new BudgetedQueue(parts.budget, (jobs) => jobs.forEach((job) => this.#begin(job)))
  }

  get size(): number {
    return this.#live.size
  }

  /** Adds a job. It is started in a microtask, never within this call. */
  add(job: Job, context: T): void {
    this.#live.set(job, new ClosureRun(job, context, this.#host))
    this.#ready.add(job)
  }

  cancel(job: Job, reason: string): void {
    this.#end(job, { kind: 'cancel', reason, facts: { workerId: this.#options.workerId } })
  }

  cancelAll(reason: string): void {
    for (const job of this.#live.keys()) this.cancel(job, reason)
  }

  /** How long the closure has run, excluding the time for which later closures blocked the loop. */
  elapsedSeconds({ startedMs, blockedMs }: ClosureRun<T>): number {
    return (this.#options.clock.monotonicMs() - startedMs - (this.#blockedMs - blockedMs)) / 1000
  }

  #begin(job: Job): void {
    const run = this.#live.get(job)
    if (run === undefined) return
    const { clock, nodeId, workerId } = this.#options
    run.startedMs = clock.monotonicMs()
    run.cancelTimer = this.#armTimeout(job)
    this.#options.report(job, { kind: 'start', workerId, nodeId })
    // The listener may have canceled the job when the start was reported.
    if (!this.#live.has(job)) return
    void this.#run(run).then(
      (value) => this.#handleReturn(job, { kind: 'complete', value }),
      (error: unknown) => this.#handleReturn(job, { kind: 'fail', error, isThrown: true }),
    )
    this.#blockedMs += clock.monotonicMs() - run.startedMs
    run.blockedMs = this.#blockedMs
  }

  /**
   * Awaits the result inside the task's context. If the closure returns another task, waiting for
   * that task then frees the slot.
   */
  #run(run: ClosureRun<T>): Promise<unknown> {
    const begin = async (): Promise<unknown> => {
      const closure = this.#options.closureOf(run.job)
      if (closure === null) throw new TypeError(`${run.uid} is no function`)
      return await closure()
    }
    return runInTask(run, begin)
  }

  #armTimeout(job: Job): () => void {
    const { clock, jobNoun } = this.#options
    const seconds = job.spec.timeoutSeconds
    if (seconds === null) return () => {}
    const error = new TimeoutError(`${jobNoun} ${job.uid} ran longer than ${seconds} s`)
    return clock.after(seconds * 1000, () => this.#end(job, { kind: 'fail', error }))
  }

  #handleReturn(job: Job, report: TaskReport): void {
    const run = this.#live.get(job)
    if (run === undefined) return this.#options.onResultDropped(job)
    this.#options.onReturned?.(run)
    this.#end(job, report)
  }

  #end(job: Job, report: TaskReport): void {
    const run = this.#live.get(job)
    if (run === undefined) return
    run.cancelTimer()
    // This must precede the report, because `close` sends progress that was held back.
    run.close()
    this.#live.delete(job)
    this.#options.report(job, report)
    this.#options.onEnded?.(run)
    if (report.kind === 'cancel') run.abort(new TaskCanceledError(job.uid, report.reason))
    else if (report.kind === 'fail') run.abort(report.error)
  }

  #handleWait(run: ClosureRun<T>): void {
    if (run.hasWaited || !this.#live.has(run.job)) return
    run.hasWaited = true
    this.#options.onWait?.(run)
  }
}
