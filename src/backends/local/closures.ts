/** Runs plain closures on this process's event loop. They can be abandoned, not stopped. */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { runInTask } from '../../foundation/task-context.ts'
import { BudgetedQueue, TurnBudget } from '../../runtime/turn-budget.ts'
import type { Job, TaskReport } from '../backend.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'

/** Asynchronous closures wait for something else most of the time, so many may be under way. */
const mostAtOnce = 1000
/** In one turn of the loop: closures that make each other ready must not block everything else. */
const mostPerTurn = 1000
const longestTurnMs = 10

export interface InProcessParts {
  readonly nodeId: string
  /** Of the worker id of all closures, `<idPrefix>/main`. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly listener: ExecutorListener
  readonly closureOf: (job: Job) => (() => unknown) | null
}

interface Live {
  readonly batch: Batch
  cancelTimer: () => void
  /** It waited for another task once, and has had no slot since. */
  hasYielded: boolean
}

export class InProcessExecutor implements Executor {
  readonly #parts: InProcessParts
  readonly #workerId: string
  readonly #live = new Map<Job, Live>()
  readonly #ready: BudgetedQueue<Job>
  #yielded = 0

  constructor(parts: InProcessParts) {
    this.#parts = parts
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
      this.#live.set(job, { batch, cancelTimer() {}, hasYielded: false })
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
    live.cancelTimer = this.#armTimeout(job)
    const { listener, nodeId } = this.#parts
    listener.report(job, { kind: 'start', workerId: this.#workerId, nodeId })
    // The listener may have canceled it.
    if (!this.#live.has(job)) return
    void this.#run(job).then(
      (value) => this.#end(job, { kind: 'complete', value }),
      (error: unknown) => this.#end(job, { kind: 'fail', error }),
    )
  }

  /** Awaits inside of the task: what is returned may be another task, which is awaited then. */
  #run(job: Job): Promise<unknown> {
    const { uid } = job
    const begin = async (): Promise<unknown> => {
      const closure = this.#parts.closureOf(job)
      if (closure === null) throw new TypeError(`${uid} is no function`)
      return await closure()
    }
    return runInTask(uid, begin, () => this.#yield(job))
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
    this.#live.delete(job)
    this.#parts.listener.report(job, report)
    if (live.hasYielded) this.#yielded--
    else this.#parts.listener.finish(live.batch)
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
