/**
 * Runs the bodies of blocks on this process's event loop, without a limit: a block waits for tasks,
 * so it must not take a slot that one of them needs.
 */

import { BudgetedQueue, TurnBudget } from '../runtime/turn-budget.ts'
import { hostname } from 'node:os'
import type { BackendListener, Connection, Job, TaskReport } from '../backends/backend.ts'
import { Attempt } from '../core/entry.ts'
import type { Clock } from '../foundation/clock.ts'
import { TimeoutError } from '../foundation/errors.ts'
import { blockBackend } from '../foundation/ids.ts'
import { runInTask } from '../foundation/task-context.ts'

export interface BlockRunnerParts {
  readonly clock: Clock
  readonly listener: BackendListener
  /** Called at the end of every attempt, before the listener. */
  readonly onAttemptEnded: (uid: string, hasSucceeded: boolean) => void
}

/** A body cannot be stopped: when its attempt ends early, it runs on and its result is ignored. */
export class BlockRunner implements Connection {
  readonly #parts: BlockRunnerParts
  readonly #nodeId = hostname()
  readonly #workerId = `${this.#nodeId}/${blockBackend}/main`
  /** Bodies start after the code that submits them, and retries leave the loop its turns. */
  readonly #ready: BudgetedQueue<Job>
  /** Jobs that have not ended, with the function that cancels their time-out. */
  readonly #live = new Map<Job, () => void>()

  constructor(parts: BlockRunnerParts) {
    this.#parts = parts
    this.#ready = new BudgetedQueue(new TurnBudget(parts.clock), (jobs) =>
      jobs.forEach((job) => this.#begin(job)),
    )
  }

  submit(jobs: readonly Job[]): void {
    for (const job of jobs) {
      this.#live.set(job, () => {})
      this.#ready.add(job)
    }
  }

  cancel(job: Job, reason: string): void {
    this.#end(job, { kind: 'cancel', reason, facts: { workerId: this.#workerId } })
  }

  release(reason: string): Promise<void> {
    for (const job of this.#live.keys()) this.cancel(job, reason)
    return Promise.resolve()
  }

  #begin(job: Job): void {
    if (!this.#live.has(job)) return
    this.#live.set(job, this.#armTimeout(job))
    const [workerId, nodeId] = [this.#workerId, this.#nodeId]
    this.#parts.listener.report(job, { kind: 'start', workerId, nodeId })
    if (!this.#live.has(job)) return
    void run(job).then(
      (value) => this.#end(job, { kind: 'complete', value }),
      (error: unknown) => this.#end(job, { kind: 'fail', error, isThrown: true }),
    )
  }

  #armTimeout(job: Job): () => void {
    const seconds = job.spec.timeoutSeconds
    if (seconds === null) return () => {}
    const error = new TimeoutError(`block ${job.uid} ran longer than ${seconds} s`)
    return this.#parts.clock.after(seconds * 1000, () => this.#end(job, { kind: 'fail', error }))
  }

  /** Only the first end counts. */
  #end(job: Job, report: TaskReport): void {
    const disarm = this.#live.get(job)
    if (disarm === undefined) return
    disarm()
    this.#live.delete(job)
    this.#parts.onAttemptEnded(job.uid, report.kind === 'complete')
    this.#parts.listener.report(job, report)
  }
}

async function run(job: Job): Promise<unknown> {
  const body = Attempt.closureOf(job)
  if (body === null) throw new TypeError(`${job.uid} is no block`)
  return await runInTask(job.uid, body)
}
