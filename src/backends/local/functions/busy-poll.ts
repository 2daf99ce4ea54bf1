/**
 * Polls once per turn of the event loop for the result of a single short job. Blocking the loop
 * until a message arrives and waking it up again takes longer than such a job runs. Other events
 * get their turns meanwhile.
 */

import type { Clock } from '../../../foundation/clock.ts'
import { machineMs } from '../machine-time.ts'
import { briskMs, type Mailbox } from './mailbox.ts'

/** How long to poll, and by which clock. Replaced in tests. */
interface PollTime {
  /** Jobs that end within this time are polled for. */
  readonly limitMs: number
  readonly nowMs: () => number
}

export class BusyPoll {
  readonly #mailbox: Mailbox
  readonly #clock: Clock
  readonly #onResult: () => void
  readonly #limitMs: number
  readonly #nowMs: () => number
  readonly #poll = (): void => this.#pollOnce()
  /** The bank whose only job is polled for. */
  #bank: number | null = null
  #postedAt = 0
  #isScheduled = false
  /** Whether the last single job ended within the limit. */
  #isBrisk = false

  /** `onResult` is called when the mailbox has the result; the worker then posts no message. */
  constructor(
    mailbox: Mailbox,
    clock: Clock,
    onResult: () => void,
    { limitMs, nowMs }: PollTime = { limitMs: briskMs, nowMs: machineMs },
  ) {
    this.#mailbox = mailbox
    this.#clock = clock
    this.#onResult = onResult
    this.#limitMs = limitMs
    this.#nowMs = nowMs
  }

  /** Called before a batch is posted. */
  begin(bank: number, jobs: number): void {
    if (this.#bank !== null) return
    this.#postedAt = jobs === 1 ? this.#nowMs() : 0
    if (jobs !== 1 || !this.#isBrisk) return
    this.#bank = bank
    this.#mailbox.watch(bank)
    this.#schedule()
  }

  /** Called when a message has arrived, or none will arrive any more. */
  end(): void {
    this.#isBrisk = this.#nowMs() - this.#postedAt < this.#limitMs
    if (this.#bank !== null) this.#stop()
  }

  /** At most one poll per turn: a poll that is already scheduled also serves the next job. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    this.#clock.nextTurn(this.#poll)
  }

  #pollOnce(): void {
    this.#isScheduled = false
    if (this.#bank === null) return
    const isOver = this.#nowMs() - this.#postedAt > this.#limitMs
    if (isOver) this.#isBrisk = false
    else if (!this.#mailbox.hasAnswered(this.#bank)) return this.#schedule()
    this.#stop()
    this.#onResult()
  }

  #stop(): void {
    this.#bank = null
    this.#mailbox.watch(null)
  }
}
