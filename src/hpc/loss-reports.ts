/** Distinguishes the loss of an allocation from other failures by asking the scheduler. */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { WorkerLostError } from '../foundation/errors.ts'
import { boundedWait } from '../foundation/promises.ts'
import { ExecutableFailedError } from '../foundation/task-errors.ts'
import type { Allocation } from './allocation.ts'

/** How long to wait for the scheduler, which must not delay the retries of tasks for longer. */
const maxMs = 5000
const pollMs = 250

/**
 * How long to wait before asking, and the shortest time between two questions. The processes of a
 * job are killed one after the other: a task may be killed, and its end be reported, before the
 * scheduler reports the end of the job.
 */
const delayMs = 500

/** The exit codes of shells and many programs after SIGINT, SIGKILL and SIGTERM. */
const signalCodes: ReadonlySet<number | null> = new Set([130, 137, 143])

/** Forwards reports; a failure that the allocation's end may explain waits for the answer. */
export class LossReports implements BackendListener {
  readonly #listener: BackendListener
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #onLost: (reason: string) => void
  readonly #waiting = new Set<Promise<void>>()
  #question: Promise<string | null> | null = null

  /** `onLost` is called before the first task is reported as canceled by the loss. */
  constructor(
    listener: BackendListener,
    allocation: Allocation,
    clock: Clock,
    onLost: (reason: string) => void = () => {},
  ) {
    this.#onLost = onLost
    this.#listener = listener
    this.#allocation = allocation
    this.#clock = clock
  }

  report(job: Job, report: TaskReport): void {
    const mayBeLoss = report.kind === 'fail' && isKilled(report.error)
    if (!mayBeLoss) return this.#listener.report(job, report)
    const waiting = this.#judge(job, report).finally(() => this.#waiting.delete(waiting))
    this.#waiting.add(waiting)
  }

  notice(notice: Notice): void {
    this.#listener.notice(notice)
  }

  /** Resolves when no report waits for an answer. */
  async settled(): Promise<void> {
    while (this.#waiting.size > 0) await Promise.all(this.#waiting)
  }

  async #judge(job: Job, report: TaskReport): Promise<void> {
    // One question serves all tasks that end together.
    this.#question ??= boundedWait(this.#clock, 2 * maxMs, this.#whyLost())
      .catch(() => null)
      .finally(() => (this.#question = null))
    const lost = await this.#question
    if (lost === null) return this.#listener.report(job, report)
    const reason = `AllocationLostError: ${lost}`
    this.#onLost(reason)
    this.#listener.report(job, { kind: 'cancel', reason })
  }

  /** Polls while the job is ending, because the job's final state is known only later. */
  async #whyLost(): Promise<string | null> {
    await sleep(this.#clock, delayMs)
    const untilMs = this.#clock.monotonicMs() + maxMs
    for (; ; await sleep(this.#clock, pollMs)) {
      const { lost, isEnding } = await this.#allocation.state({ isChanged: true })
      if (!isEnding) return lost
      if (this.#clock.monotonicMs() >= untilMs) return 'the job is ending'
    }
  }
}

/** Whether the error suggests that the task was killed from outside. */
function isKilled(error: unknown): boolean {
  if (WorkerLostError.isInstance(error)) return true
  if (!ExecutableFailedError.isInstance(error)) return false
  return error.signal !== null || signalCodes.has(error.exitCode)
}
