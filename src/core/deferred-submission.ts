/**
 * How a workflow engine uses a session: it registers tasks now and hands them over, or ends them,
 * later. Not for applications.
 */

import type { AnyTask, Backend, BackendListener } from '../backends/backend.ts'
import type { EventClass, TrustedFields } from '../events/event.ts'
import { ValueError } from '../foundation/errors.ts'
import type { Task } from '../tasks/task.ts'
import type { Entry, HeldEnd, Registration } from './entry.ts'
import { Delivery, type Place, type Seat } from './dispatch-batch.ts'
import type { Ledger } from './ledger.ts'
import { route } from './routing.ts'
import type { SignalWatch } from './signals.ts'

/** A registered task with what is to run, and where if that is not for routing to decide. */
export interface HandOver {
  readonly entry: Entry
  readonly work: AnyTask
  readonly seat: Place | null
}

export interface RegistrarParts {
  readonly ledger: Ledger
  readonly signals: SignalWatch
  readonly seats: () => readonly Seat[]
}

/** Writes no task's state: the ledger does. */
export class Registrar {
  readonly #parts: RegistrarParts

  constructor(parts: RegistrarParts) {
    this.#parts = parts
  }

  /** For a place of the caller's own. */
  get listener(): BackendListener {
    const { ledger } = this.#parts
    return { report: (job, report) => ledger.record(job, report), notice() {} }
  }

  /** TaskCreated; from now on the task can be awaited. Its signal may have ended it already. */
  register(task: Task, registration: Registration): Entry {
    const { ledger, signals } = this.#parts
    ledger.bind(task)
    const entry = ledger.hold(task, registration)
    signals.watch(task)
    return entry
  }

  /** Hands all of them over at once; one that no backend takes fails alone. */
  handOver(items: readonly HandOver[]): void {
    const { ledger } = this.#parts
    const seats = this.#parts.seats()
    const backends = seats.map(({ backend }) => backend)
    const delivery = new Delivery(ledger)
    for (const { entry, work, seat: own } of items) {
      const seat = own ?? this.#seatFor(entry, work, seats, backends)
      if (seat === null) continue
      ledger.release(entry, work)
      delivery.add(entry, seat)
    }
    delivery.submit()
  }

  /** Ends a task that was not handed over; does nothing to any other. */
  end(entry: Entry, end: HeldEnd): void {
    this.#parts.ledger.endHeld(entry, end)
  }

  /** Like `Session.cancel`. */
  cancel(task: Task, reason: string): boolean {
    return this.#parts.ledger.requestCancel(task, reason)
  }

  /** Emits an event of the library's own, if somebody listens. */
  tell<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void {
    this.#parts.ledger.narrator.tell(eventClass, fields)
  }

  #seatFor(
    entry: Entry,
    work: AnyTask,
    seats: readonly Seat[],
    backends: readonly Backend[],
  ): Seat | null {
    try {
      const found = route(work, backends)
      if (!('problem' in found)) return seats[backends.indexOf(found.backend)] ?? null
      const { field, message, code } = found.problem
      throw new ValueError(field === '' ? message : `${field}: ${message}`, { code, field })
    } catch (error) {
      this.end(entry, { kind: 'fail', error })
      return null
    }
  }
}
