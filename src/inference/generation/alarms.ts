/** Many deadlines on one timer. */

import type { Clock } from '../../foundation/clock.ts'
import { DueTimer } from './due-timer.ts'
import { Heap } from './heap.ts'
import type { Ticket } from './ticket.ts'

/** Alarms that ring in one turn: however many are due at once, others have their turns too. */
const mostPerTurn = 1000

/** Calls back for each ticket once its time has come; a ticket has one alarm at most. */
export class Alarms {
  readonly #clock: Clock
  readonly #ring: (ticket: Ticket) => void
  readonly #heap = new Heap<Ticket>((a, b) => a.alarmMs < b.alarmMs)
  readonly #timer: DueTimer
  /** More of them ring in the next turn. */
  #isRinging = false

  constructor(clock: Clock, ring: (ticket: Ticket) => void) {
    this.#clock = clock
    this.#ring = ring
    this.#timer = new DueTimer(clock, () => this.#ringDue())
  }

  /** Rings at `dueMs` or earlier: an earlier alarm stays, and whoever it wakes may set it anew. */
  set(ticket: Ticket, dueMs: number): void {
    if (dueMs >= ticket.alarmMs) return
    if (ticket.alarm !== null) this.#heap.remove(ticket.alarm)
    ticket.alarmMs = dueMs
    ticket.alarm = this.#heap.add(ticket)
    if (dueMs < this.#timer.dueMs) this.#timer.set(dueMs)
  }

  remove(ticket: Ticket): void {
    if (ticket.alarm === null) return
    this.#heap.remove(ticket.alarm)
    ticket.alarm = null
    ticket.alarmMs = Infinity
    // A timer that rings too early costs less than a new one for every request that ends.
    if (this.#heap.size === 0) this.#timer.set(Infinity)
  }

  #ringDue(): void {
    if (this.#isRinging) return
    const nowMs = this.#clock.monotonicMs()
    for (let rung = 0; rung < mostPerTurn; rung++) {
      const ticket = this.#heap.first()
      if (ticket === undefined) return
      if (ticket.alarmMs > nowMs) return this.#timer.set(ticket.alarmMs)
      this.remove(ticket)
      this.#ring(ticket)
    }
    this.#isRinging = true
    this.#clock.nextTurn(() => {
      this.#isRinging = false
      this.#ringDue()
    })
  }
}
