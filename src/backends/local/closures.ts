/**
 * Runs plain closures on this process's event loop, up to `maxAtOnce` at a time. A closure can be
 * abandoned but not stopped; one that blocks the loop cannot even be abandoned.
 */

import { LoopBlocked } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { TurnBudget } from '../../runtime/turn-budget.ts'
import { type Job, toEventNotice } from '../backend.ts'
import { type ClosureRun, ClosureRuns } from '../closure-runs.ts'
import type { Batch, Executor, ExecutorListener } from './executor.ts'

/** High, because asynchronous closures spend most of their time waiting. */
const maxAtOnce = 1000
/** The limits per turn: closures that make each other ready must not block the event loop. */
const maxPerTurn = 1000
const maxTurnMs = 10
/** The limit of `#named`; further functions that block the loop are not reported. */
const maxNamed = 1000

export interface InProcessParts {
  readonly nodeId: string
  /** All closures have the worker id `<idPrefix>/main`. */
  readonly idPrefix: string
  readonly clock: Clock
  readonly log: Log
  readonly listener: ExecutorListener
  readonly closureOf: (job: Job) => (() => unknown) | null
}

export class InProcessExecutor implements Executor {
  readonly #parts: InProcessParts
  readonly #runs: ClosureRuns<Batch>
  /** Functions already reported for blocking the loop. */
  readonly #named = new Set<string>()
  /** Running closures that have awaited another task and given their slot back for good. */
  #yielded = 0

  constructor(parts: InProcessParts) {
    const { nodeId, clock, listener, closureOf } = parts
    this.#parts = parts
    this.#runs = new ClosureRuns({
      nodeId,
      workerId: `${parts.idPrefix}/main`,
      clock,
      budget: new TurnBudget(clock, maxPerTurn, maxTurnMs),
      noun: 'task',
      closureOf,
      report: (job, report) => listener.report(job, report),
      notice: (notice, job) => listener.notice(notice, job),
      resultDropped: (job) => listener.resultDropped(job),
      onReturned: (run) => this.#nameIfBlocking(run),
      onEnded: (run) => {
        if (run.hasWaited) this.#yielded--
        else listener.finish(run.context)
      },
      // Frees the slot, because the awaited task may need it: otherwise, both would wait forever.
      onWait: (run) => {
        this.#yielded++
        listener.finish(run.context)
      },
    })
  }

  get freeSlots(): number {
    return maxAtOnce - (this.#runs.size - this.#yielded)
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
   * Reports a closure that blocked the loop beyond its own time-out, so that its timer could not
   * fire. The time for which closures that began later blocked the loop does not count.
   */
  #nameIfBlocking(run: ClosureRun<Batch>): void {
    const { uid, spec } = run.job
    const { timeoutSeconds, executable } = spec
    if (timeoutSeconds === null) return
    const { log, listener, nodeId } = this.#parts
    const seconds = this.#runs.secondsOf(run)
    if (seconds <= timeoutSeconds) return
    if (this.#named.has(executable) || this.#named.size >= maxNamed) return
    this.#named.add(executable)
    const hint = 'Define it with `defineTask` in a module of its own: it then runs on a worker.'
    const fields = { executable, seconds, timeout_seconds: timeoutSeconds, hint }
    listener.notice(toEventNotice(LoopBlocked, fields, { taskId: uid, nodeId }))
    const text = `${executable} (task ${uid}) held the event loop for ${seconds.toFixed(3)} s`
    log.warn('LoopBlocked', `${text}; its time-out is ${timeoutSeconds} s. ${hint}`)
  }
}
