/** Asks the scheduler whether a task failed because its allocation was lost. */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { WorkerLostError } from '../foundation/errors.ts'
import { boundedWait } from '../foundation/promises.ts'
import { ExecutableFailedError } from '../foundation/task-errors.ts'
import type { Allocation } from './allocation.ts'

/** How long to wait for the scheduler's answer. A longer wait would delay the retries of tasks. */
const answerTimeoutMs = 5000
const pollIntervalMs = 250

/** Slurm kills the processes of a job one by one, before it reports the end of the job. */
const firstQueryDelayMs = 500

/** The exit codes of shells and many programs after SIGINT, SIGKILL and SIGTERM. */
const signalCodes: ReadonlySet<number | null> = new Set([130, 137, 143])

/** Forwards reports. Asks the scheduler first if a lost allocation may have caused a failure. */
export class LossReports implements BackendListener {
  readonly #listener: BackendListener
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #onLost: (reason: string) => void
  readonly #waiting = new Set<Promise<void>>()
  #query: Promise<string | null> | null = null

  /** `onLost` is called before the first task is reported as canceled because of the loss. */
  constructor(
    listener: BackendListener,
    allocation: Allocation,
    clock: Clock,
    onLost: (reason: string) => void,
  ) {
    this.#onLost = onLost
    this.#listener = listener
    this.#allocation = allocation
    this.#clock = clock
  }

  report(job: Job, report: TaskReport): void {
    const mayBeLoss = report.kind === 'fail' && isKilled(report.error)
    if (!mayBeLoss) return this.#listener.report(job, report)
    const waiting = this.#reportWhenKnown(job, report).finally(() => this.#waiting.delete(waiting))
    this.#waiting.add(waiting)
  }

  notice(notice: Notice): void {
    this.#listener.notice(notice)
  }

  async settled(): Promise<void> {
    while (this.#waiting.size > 0) await Promise.all(this.#waiting)
  }

  async #reportWhenKnown(job: Job, report: TaskReport): Promise<void> {
    this.#query ??= boundedWait(this.#clock, 2 * answerTimeoutMs, this.#findLossReason())
      .catch(() => null)
      .finally(() => (this.#query = null))
    const lost = await this.#query
    if (lost === null) return this.#listener.report(job, report)
    const reason = `AllocationLostError: ${lost}`
    this.#onLost(reason)
    this.#listener.report(job, { kind: 'cancel', reason })
  }

  /** Polls while the job is ending, because its final state is known only later. */
  async #findLossReason(): Promise<string | null> {
    await sleep(this.#clock, firstQueryDelayMs)
    const untilMs = this.#clock.monotonicMs() + answerTimeoutMs
    for (; ; await sleep(this.#clock, pollIntervalMs)) {
      const { lost, isEnding } = await this.#allocation.state({ isChanged: true })
      if (!isEnding) return lost
      if (this.#clock.monotonicMs() >= untilMs) return 'the job is ending'
    }
  }
}

function isKilled(error: unknown): boolean {
  if (WorkerLostError.isInstance(error)) return true
  if (!ExecutableFailedError.isInstance(error)) return false
  return error.signal !== null || signalCodes.has(error.exitCode)
}
