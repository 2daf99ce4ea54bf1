/** The requests that no engine has: by priority, then by arrival. It neither waits nor decides. */

import { PriorityQueue } from '../../runtime/priority-queue.ts'
import type { Ticket } from './ticket.ts'

/** Every step costs log(size), also for one who leaves from the middle. */
export class WaitingLine {
  readonly #byTurn = new PriorityQueue<Ticket>((a, b) => {
    const difference = a.queued.priority - b.queued.priority
    return difference === 0 ? a.number < b.number : difference > 0
  })
  readonly #byAge = new PriorityQueue<Ticket>((a, b) => a.number < b.number)

  #bounded = 0

  get size(): number {
    return this.#byTurn.size
  }

  /** How many of them count against the limit. */
  get bounded(): number {
    return this.#bounded
  }

  /** Who comes next. */
  next(): Ticket | undefined {
    return this.#byTurn.peek()
  }

  oldest(): Ticket | undefined {
    return this.#byAge.peek()
  }

  /** A ticket that comes back takes its old place. */
  add(ticket: Ticket): void {
    if (ticket.queued.isBounded) this.#bounded++
    ticket.turn = this.#byTurn.add(ticket)
    ticket.age = this.#byAge.add(ticket)
  }

  /** Does nothing for one that does not wait. */
  remove(ticket: Ticket): void {
    if (ticket.turn === null || ticket.age === null) return
    if (ticket.queued.isBounded) this.#bounded--
    this.#byTurn.remove(ticket.turn)
    this.#byAge.remove(ticket.age)
    ticket.turn = null
    ticket.age = null
  }

  /** The next ones, at most `size`; one that has to go alone comes alone. */
  take(size: number): Ticket[] {
    const taken: Ticket[] = []
    for (let next = this.next(); next !== undefined && taken.length < size; next = this.next()) {
      if (next.isAlone && taken.length > 0) break
      this.remove(next)
      taken.push(next)
      if (next.isAlone) break
    }
    return taken
  }
}
