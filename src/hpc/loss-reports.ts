/** Tells the loss of an allocation from other failures: the scheduler knows, and is asked. */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { type Clock, sleep } from '../foundation/clock.ts'
import { WorkerLostError } from '../foundation/errors.ts'
import { boundedWait } from '../foundation/promises.ts'
import { ExecutableFailedError } from '../foundation/task-errors.ts'
import type { Allocation } from './allocation.ts'

/** A scheduler that is away must not keep tasks from their retries. */
const longestMs = 5000
const pollMs = 250

/**
 * The processes of a job are killed one after the other: a task may be killed, and its end be told,
 * before the scheduler calls the job ended. Also the shortest time between two questions.
 */
const delayMs = 500

/** What a shell, and many a program, exits with after SIGINT, SIGKILL and SIGTERM. */
const signalCodes: ReadonlySet<number | null> = new Set([130, 137, 143])

/** Passes everything on; failures that the end of the allocation explains wait for the answer. */
export class LossReports implements BackendListener {
  readonly #listener: BackendListener
  readonly #allocation: Allocation
  readonly #clock: Clock
  readonly #onLost: (reason: string) => void
  readonly #waiting = new Set<Promise<void>>()
  #question: Promise<string | null> | null = null

  /** `onLost` is called before the first task is told that the allocation is the reason. */
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

  /** Resolves when nothing waits any more. */
  async settled(): Promise<void> {
    while (this.#waiting.size > 0) await Promise.all(this.#waiting)
  }

  async #judge(job: Job, report: TaskReport): Promise<void> {
    // One question for all tasks that end together.
    this.#question ??= boundedWait(this.#clock, 2 * longestMs, this.#whyLost())
      .catch(() => null)
      .finally(() => (this.#question = null))
    const lost = await this.#question
    if (lost === null) return this.#listener.report(job, report)
    const reason = `AllocationLostError: ${lost}`
    this.#onLost(reason)
    this.#listener.report(job, { kind: 'cancel', reason })
  }

  /** A job that is ending says only later how it has ended. */
  async #whyLost(): Promise<string | null> {
    await sleep(this.#clock, delayMs)
    const untilMs = this.#clock.monotonicMs() + longestMs
    for (;;) {
      const { lost, isEnding } = await this.#allocation.state({ isChanged: true })
      if (!isEnding) return lost
      if (this.#clock.monotonicMs() >= untilMs) return 'the job is ending'
      await sleep(this.#clock, pollMs)
    }
  }
}

/** Whether the task was ended from outside, as far as its failure tells. */
function isKilled(error: unknown): boolean {
  if (WorkerLostError.isInstance(error)) return true
  if (!ExecutableFailedError.isInstance(error)) return false
  return error.signal !== null || signalCodes.has(error.exitCode)
}
