/** Runs plain closures on this process's event loop. They can be abandoned, not stopped. */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { runInTask } from '../../foundation/task-context.ts'
import type { Job, TaskReport } from '../backend.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'

/** Asynchronous closures wait for something else most of the time, so many may be under way. */
const mostAtOnce = 1000
/** The loop stays free: this many begin in one of its turns, for as long as this. */
const mostPerTurn = 1000
const longestTurnMs = 10

export interface InProcessParts {
  readonly nodeId: string
  readonly clock: Clock
  readonly listener: ExecutorListener
  readonly closureOf: (job: Job) => (() => unknown) | null
}

interface Live {
  readonly batch: Batch
  cancelTimer: () => void
  /** It waited for another task once, and holds no place since. */
  hasYielded: boolean
}

export class InProcessExecutor implements Executor {
  readonly #parts: InProcessParts
  readonly #workerId: string
  readonly #live = new Map<Job, Live>()
  #waiting: Job[] = []
  #yielded = 0
  #isScheduled = false
  #begunInTurn = 0
  #turnBeganMs = 0

  constructor(parts: InProcessParts) {
    this.#parts = parts
    this.#workerId = `${parts.nodeId}/main`
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
      this.#waiting.push(job)
    }
    if (this.#isScheduled) return
    this.#isScheduled = true
    queueMicrotask(() => this.#beginAll())
  }

  cancel(job: Job, reason: string): void {
    this.#end(job, { kind: 'cancel', reason, facts: { workerId: this.#workerId } })
  }

  close(reason: string): Promise<void> {
    for (const job of this.#live.keys()) this.cancel(job, reason)
    return Promise.resolve()
  }

  /** What this turn has no room for begins in the next. */
  #beginAll(): void {
    this.#isScheduled = false
    const jobs = this.#waiting
    this.#waiting = []
    let begun = 0
    while (begun < jobs.length && this.#hasRoomInTurn()) {
      const job = jobs[begun++]
      const live = job === undefined ? undefined : this.#live.get(job)
      if (job !== undefined && live !== undefined) this.#begin(job, live)
    }
    if (begun === jobs.length) return
    this.#waiting = [...jobs.slice(begun), ...this.#waiting]
    this.#isScheduled = true
  }

  /** Closures that make each other ready must not keep everything else from its turn. */
  #hasRoomInTurn(): boolean {
    const { clock } = this.#parts
    if (this.#begunInTurn === 0) {
      this.#turnBeganMs = clock.monotonicMs()
      clock.nextTurn(() => {
        this.#begunInTurn = 0
        if (this.#waiting.length > 0) this.#beginAll()
      })
    }
    if (this.#begunInTurn >= mostPerTurn) return false
    if (clock.monotonicMs() - this.#turnBeganMs > longestTurnMs) return false
    this.#begunInTurn++
    return true
  }

  #begin(job: Job, live: Live): void {
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

  /** What it waits for may need the place that it holds: tasks that await tasks never deadlock. */
  #yield(job: Job): void {
    const live = this.#live.get(job)
    if (live === undefined || live.hasYielded) return
    live.hasYielded = true
    this.#yielded++
    this.#parts.listener.finish(live.batch)
  }
}
