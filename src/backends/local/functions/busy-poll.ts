/**
 * Keeps the loop awake for a lone result that should come within moments: going to sleep and being
 * woken takes longer than the job. Other events have their turns meanwhile.
 */

import type { Clock } from '../../../foundation/clock.ts'
import { machineMs } from '../machine-time.ts'
import { briskMs, type Mailbox } from './mailbox.ts'

export class Vigil {
  readonly #mailbox: Mailbox
  readonly #clock: Clock
  readonly #hear: () => void
  readonly #look = (): void => this.#turnOnce()
  /** The bank whose one job is waited for. */
  #bank: number | null = null
  #postedAt = 0
  #isLooking = false
  /** The last lone job was answered within moments. */
  #isBrisk = false

  /** `hear` is called when the mailbox has the result, of which no message tells then. */
  constructor(mailbox: Mailbox, clock: Clock, hear: () => void) {
    this.#mailbox = mailbox
    this.#clock = clock
    this.#hear = hear
  }

  /** A batch is about to be posted. */
  begin(bank: number, jobs: number): void {
    if (this.#bank !== null) return
    this.#postedAt = jobs === 1 ? machineMs() : 0
    if (jobs !== 1 || !this.#isBrisk) return
    this.#bank = bank
    this.#mailbox.watch(bank)
    this.#lookSoon()
  }

  /** A message came, or none will come any more. */
  end(): void {
    this.#isBrisk = machineMs() - this.#postedAt < briskMs
    if (this.#bank !== null) this.#stop()
  }

  /** Once a turn: the look of a vigil that has ended serves the next one. */
  #lookSoon(): void {
    if (this.#isLooking) return
    this.#isLooking = true
    this.#clock.nextTurn(this.#look)
  }

  #turnOnce(): void {
    this.#isLooking = false
    if (this.#bank === null) return
    const isOver = machineMs() - this.#postedAt > briskMs
    if (isOver) this.#isBrisk = false
    else if (!this.#mailbox.hasAnswered(this.#bank)) return this.#lookSoon()
    this.#stop()
    this.#hear()
  }

  #stop(): void {
    this.#bank = null
    this.#mailbox.watch(null)
  }
}
