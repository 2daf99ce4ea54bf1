/** Tells the loss of an allocation from that of a node: the scheduler knows, and is asked. */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { TuttiError } from '../foundation/errors.ts'
import { boundedWait } from '../foundation/promises.ts'
import type { Allocation } from './allocation.ts'

/** A scheduler that is away must not keep tasks from their retries. */
const longestMs = 5000
const pollMs = 250

/** Passes everything on; only the failures of tasks whose nodes were lost wait for the answer. */
export class LossReports implements BackendListener {
  readonly #listener: BackendListener
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #waiting = new Set<Promise<void>>()
  #question: Promise<string | null> | null = null

  constructor(listener: BackendListener, allocation: Allocation, clock: Clock) {
    this.#listener = listener
    this.#allocation = allocation
    this.#clock = clock
  }

  report(job: Job, report: TaskReport): void {
    const isLoss =
      report.kind === 'fail' &&
      TuttiError.isInstance(report.error) &&
      report.error.code === 'NodeLostError'
    if (!isLoss) return this.#listener.report(job, report)
    const waiting = this.#judge(job, report).finally(() => this.#waiting.delete(waiting))
    this.#waiting.add(waiting)
  }

  notice(notice: Notice): void {
    this.#listener.notice(notice)
  }

  /** Resolves when nothing waits any more. */
  async settled(): Promise<void> {
    while (this.#waiting.size > 0) await Promise.all(this.#waiting)
  }

  async #judge(job: Job, report: TaskReport): Promise<void> {
    // One question for all tasks of a node.
    this.#question ??= boundedWait(this.#clock, 2 * longestMs, this.#whyLost())
      .catch(() => null)
      .finally(() => (this.#question = null))
    const lost = await this.#question
    if (lost === null) this.#listener.report(job, report)
    else this.#listener.report(job, { kind: 'cancel', reason: `AllocationLostError: ${lost}` })
  }

  /** A job that is ending says only later how it has ended. */
  async #whyLost(): Promise<string | null> {
    const untilMs = this.#clock.monotonicMs() + longestMs
    for (;;) {
      const { lost, isEnding } = await this.#allocation.state({ isChanged: true })
      if (!isEnding) return lost
      if (this.#clock.monotonicMs() >= untilMs) return 'the job is ending'
      await sleep(this.#clock, pollMs)
    }
  }
}
