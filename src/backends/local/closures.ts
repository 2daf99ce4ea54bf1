/**
 * Runs plain closures on this process's event loop. They can be abandoned, not stopped; one that
 * holds the loop cannot even be abandoned.
 */

import { LoopBlocked } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { TaskCanceledError } from '../../foundation/task-errors.ts'
import type { Log } from '../../foundation/log.ts'
import { RunningTask, runInTask, type TaskHost } from '../../foundation/task-context.ts'
import { BudgetedQueue, TurnBudget } from '../../runtime/turn-budget.ts'
import { type Job, type TaskReport, toEventNotice } from '../backend.ts'
import {
  type Batch,
  type Executor,
  type ExecutorListener,
  toUpdateNotice,
  toUpdateRecord,
} from './executor.ts'

/** Asynchronous closures wait for something else most of the time, so many may be under way. */
const mostAtOnce = 1000
/** In one turn of the loop: closures that make each other ready must not block everything else. */
const mostPerTurn = 1000
const longestTurnMs = 10
/** Functions beyond this many that hold the loop are not named. */
const mostNamed = 1000

export interface InProcessParts {
  readonly nodeId: string
  /** Of the worker id of all closures, `<idPrefix>/main`. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  readonly closureOf: (job: Job) => (() => unknown) | null
}

/** The run of one closure. */
class ClosureTask extends RunningTask {
  readonly job: Job

  constructor(job: Job, host: TaskHost<ClosureTask>) {
    super(job.uid, job.attempt, host)
    this.job = job
  }
}

interface Live {
  task: ClosureTask | null
  readonly batch: Batch
  startedMs: number
  /** How long closures had held the loop when this one first gave it back. */
  heldMs: number
  cancelTimer: () => void
  /** It waited for another task once, and has had no slot since. */
  hasYielded: boolean
}

export class InProcessExecutor implements Executor {
  readonly #parts: InProcessParts
  readonly #workerId: string
  readonly #live = new Map<Job, Live>()
  readonly #ready: BudgetedQueue<Job>
  /** Functions that held the loop and were named. */
  readonly #named = new Set<string>()
  /** How long all closures have held the loop until their first `await`. */
  #heldMs = 0
  #yielded = 0
  readonly #host: TaskHost<ClosureTask>

  constructor(parts: InProcessParts) {
    this.#parts = parts
    this.#host = {
      clock: parts.clock,
      update: ({ job }, update) => {
        const notice = toUpdateNotice(toUpdateRecord(update), job.uid, parts.nodeId)
        parts.listener.notice(notice, job)
      },
      waits: ({ job }) => this.#yield(job),
    }
    this.#workerId = `${parts.idPrefix}/main`
    const budget = new TurnBudget(parts.clock, mostPerTurn, longestTurnMs)
    this.#ready = new BudgetedQueue(budget, (jobs) => jobs.forEach((job) => this.#begin(job)))
  }

  get freeSlots(): number {
    return mostAtOnce - (this.#live.size - this.#yielded)
  }

  batchSize(): number {
    return 1
  }

  /** Begins in a microtask: never inside of the call that submits. */
  assign(batch: Batch): void {
    for (const job of batch.jobs) {
      this.#live.set(job, {
        batch,
        task: null,
        startedMs: 0,
        heldMs: 0,
        cancelTimer() {},
        hasYielded: false,
      })
      this.#ready.add(job)
    }
  }

  cancel(job: Job, reason: string): void {
    this.#end(job, { kind: 'cancel', reason, facts: { workerId: this.#workerId } })
  }

  close(reason: string): Promise<void> {
    for (const job of this.#live.keys()) this.cancel(job, reason)
    return Promise.resolve()
  }

  #begin(job: Job): void {
    const live = this.#live.get(job)
    if (live === undefined) return
    live.startedMs = this.#parts.clock.monotonicMs()
    live.cancelTimer = this.#armTimeout(job)
    const { listener, nodeId } = this.#parts
    listener.report(job, { kind: 'start', workerId: this.#workerId, nodeId })
    // The listener may have canceled it.
    if (!this.#live.has(job)) return
    live.task = new ClosureTask(job, this.#host)
    void this.#run(job, live.task).then(
      (value) => this.#returned(job, { kind: 'complete', value }),
      (error: unknown) => this.#returned(job, { kind: 'fail', error, isThrown: true }),
    )
    this.#heldMs += this.#parts.clock.monotonicMs() - live.startedMs
    live.heldMs = this.#heldMs
  }

  #returned(job: Job, report: TaskReport): void {
    const live = this.#live.get(job)
    if (live === undefined) return this.#parts.listener.resultDropped(job)
    this.#nameIfBlocking(job, live)
    this.#end(job, report)
  }

  /** Its time-out is over and could not fire, and not because of closures that began later. */
  #nameIfBlocking({ uid, spec }: Job, { startedMs, heldMs }: Live): void {
    const { timeoutSeconds, executable } = spec
    if (timeoutSeconds === null) return
    const { clock, log, listener, nodeId } = this.#parts
    const heldByOthersMs = this.#heldMs - heldMs
    const seconds = (clock.monotonicMs() - startedMs - heldByOthersMs) / 1000
    if (seconds <= timeoutSeconds) return
    if (this.#named.has(executable) || this.#named.size >= mostNamed) return
    this.#named.add(executable)
    const hint = 'Define it with `defineTask` in a module of its own: it then runs on a worker.'
    const fields = { executable, seconds, timeout_seconds: timeoutSeconds, hint }
    listener.notice(toEventNotice(LoopBlocked, fields, { taskId: uid, nodeId }))
    const text = `${executable} (task ${uid}) held the event loop for ${seconds.toFixed(3)} s`
    log.warn('LoopBlocked', `${text}; its time-out is ${timeoutSeconds} s. ${hint}`)
  }

  /** Awaits inside of the task: what is returned may be another task, which is awaited then. */
  #run(job: Job, task: ClosureTask): Promise<unknown> {
    const { uid } = job
    const begin = async (): Promise<unknown> => {
      const closure = this.#parts.closureOf(job)
      if (closure === null) throw new TypeError(`${uid} is no function`)
      return await closure()
    }
    return runInTask(task, begin)
  }

  #armTimeout(job: Job): () => void {
    const seconds = job.spec.timeoutSeconds
    if (seconds === null) return () => {}
    const error = new TimeoutError(`task ${job.uid} ran longer than ${seconds} s`)
    return this.#parts.clock.after(seconds * 1000, () => this.#end(job, { kind: 'fail', error }))
  }

  /** Only the first end counts: a canceled closure runs on, and its result is dropped. */
  #end(job: Job, report: TaskReport): void {
    const live = this.#live.get(job)
    if (live === undefined) return
    live.cancelTimer()
    // Before the end: what the code told by then belongs to the task.
    live.task?.close()
    this.#live.delete(job)
    this.#parts.listener.report(job, report)
    if (live.hasYielded) this.#yielded--
    else this.#parts.listener.finish(live.batch)
    if (report.kind === 'cancel') {
      live.task?.abort(new TaskCanceledError(job.uid, report.reason))
    } else if (report.kind === 'fail') live.task?.abort(report.error)
  }

  /** What it waits for may need its slot: tasks that await tasks never deadlock. */
  #yield(job: Job): void {
    const live = this.#live.get(job)
    if (live === undefined || live.hasYielded) return
    live.hasYielded = true
    this.#yielded++
    this.#parts.listener.finish(live.batch)
  }
}
