/** Hands tasks to their backends, those of one turn together. */

import type { Backend, Connection } from '../backends/backend.ts'
import type { Entry } from './entry.ts'
import type { Ledger } from './ledger.ts'

/** Where a task goes; a workflow's blocks have a place that is no whole backend. */
export interface Place {
  readonly backend: Pick<Backend, 'name' | 'model'>
  readonly connection: Connection
}

/** A backend, and the session's line to it. */
export interface Seat extends Place {
  readonly backend: Backend
}

export class Delivery {
  readonly #ledger: Ledger
  readonly #batches = new Map<Connection, Entry[]>()

  constructor(ledger: Ledger) {
    this.#ledger = ledger
  }

  /** SUBMITTED and QUEUED, as it is about to be handed over. */
  add(entry: Entry, { backend, connection }: Place): void {
    this.#ledger.assign(entry, backend, connection)
    const batch = this.#batches.get(connection)
    if (batch === undefined) this.#batches.set(connection, [entry])
    else batch.push(entry)
  }

  /** All that was added and has not been canceled meanwhile. */
  submit(): void {
    for (const [connection, batch] of this.#batches) this.#ledger.submit(connection, batch)
  }
}
