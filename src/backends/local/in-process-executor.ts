/**
 * Runs closures on this process's event loop, up to `maxConcurrent` at a time. A closure cannot be
 * stopped, and its time-out cannot fire while it blocks the loop.
 */

import { LoopBlocked } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { TurnBudget } from '../../runtime/turn-budget.ts'
import { type Job, toEventNotice } from '../backend.ts'
import { type ClosureRun, ClosureRuns } from '../closure-runs.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'

/** The limit is high, because asynchronous closures spend most of their time waiting. */
const maxConcurrent = 1000
/** The limits per turn of the event loop: closures that start each other must not block it. */
const maxPerTurn = 1000
const maxTurnMs = 10
/** The maximum size of `#reported`. Further functions that block the loop are not reported. */
const maxReported = 1000

export interface InProcessExecutorOptions {
  readonly nodeId: string
  /** All closures share the worker id `<idPrefix>/main`. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  readonly closureOf: (job: Job) => (() => unknown) | null
}

export class InProcessExecutor implements Executor {
  readonly #options: InProcessExecutorOptions
  readonly #runs: ClosureRuns<Batch>
  readonly #reported = new Set<string>()
  #yielded = 0

  constructor(parts: InProcessExecutorOptions) {
    const { nodeId, clock, listener, closureOf } = parts
    this.#options = parts
    this.#runs = new ClosureRuns({
      nodeId,
      workerId: `${parts.idPrefix}/main`,
      clock,
      budget: new TurnBudget(clock, maxPerTurn, maxTurnMs),
      jobNoun: 'task',
      closureOf,
      report: (job, report) => listener.report(job, report),
      notice: (notice, job) => listener.notice(notice, job),
      onResultDropped: (job) => listener.resultDropped(job),
      onReturned: (run) => this.#reportIfBlocking(run),
      onEnded: (run) => {
        if (run.hasWaited) this.#yielded--
        else listener.finish(run.context)
      },
      // Frees the slot, because the awaited task may need it. Otherwise, both tasks could wait
      // forever.
      onWait: (run) => {
        this.#yielded++
        listener.finish(run.context)
      },
    })
  }

  get freeSlots(): number {
    return maxConcurrent - (this.#runs.size - this.#yielded)
  }

  batchSize(): number {
    return 1
  }

  assign(batch: Batch): void {
    for (const job of batch.jobs) this.#runs.add(job, batch)
  }

  cancel(job: Job, reason: string): void {
    this.#runs.cancel(job, reason)
  }

  close(reason: string): Promise<void> {
    this.#runs.cancelAll(reason)
    return Promise.resolve()
  }

  /**
   * Reports a closure that blocked the event loop for longer than its time-out, so that the
   * time-out could not fire. Ignores the time for which later closures blocked the loop.
   */
  #reportIfBlocking(run: ClosureRun<Batch>): void {
    const { uid, spec } = run.job
    const { timeoutSeconds, executable } = spec
    if (timeoutSeconds === null) return
    const { log, listener, nodeId } = this.#options
    const seconds = this.#runs.elapsedSeconds(run)
    if (seconds <= timeoutSeconds) return
    if (this.#reported.has(executable) || this.#reported.size >= maxReported) return
    this.#reported.add(executable)
    const hint = 'Define it with `defineTask` in a module of its own: it then runs on a worker.'
    const fields = { executable, seconds, timeout_seconds: timeoutSeconds, hint }
    listener.notice(toEventNotice(LoopBlocked, fields, { taskId: uid, nodeId }))
    const text = `${executable} (task ${uid}) held the event loop for ${seconds.toFixed(3)} s`
    log.warn('LoopBlocked', `${text}; its time-out is ${timeoutSeconds} s. ${hint}`)
  }
}
