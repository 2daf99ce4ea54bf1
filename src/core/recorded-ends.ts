/** Reports to backends which ends are recorded, so that a remote one may forget them. */

import type { Connection, Job } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { isThenable } from '../foundation/promises.ts'
import { countText } from '../views/readable.ts'

/** While the checkpoint cannot be written, more ends than this are not kept. */
const mostPending = 100_000

/** The record of the ends: what of it is durable, and what is gone. */
export interface EndsRecord {
  /** Resolves when all lines so far are durable, except those that are lost. */
  flush(): Promise<void>
  readonly lostLines: number
}

export interface RecordedEndsParts {
  readonly clock: Clock
  readonly log: Log
}

/**
 * Every attempt whose end the ledger has taken counts, also one that is retried. Ends of one turn
 * of the loop are one batch a connection; with a checkpoint, one flush precedes each batch.
 * Connections without `recorded` cost nothing.
 */
export class RecordedEnds {
  /** `null` without a checkpoint. */
  record: EndsRecord | null = null
  readonly #parts: RecordedEndsParts
  #pending = new Map<Connection, Job[]>()
  /** The one of `#pending` that was added to last: ends mostly come many from one backend. */
  #latest: { readonly connection: Connection; readonly jobs: Job[] } | null = null
  #count = 0
  #dropped = 0
  #lostLines = 0
  #delivering: Promise<void> | null = null
  readonly #sealed = new WeakSet<Connection>()

  constructor(parts: RecordedEndsParts) {
    this.#parts = parts
  }

  add(connection: Connection, job: Job): void {
    if (connection.recorded === undefined) return
    const latest = this.#latest?.connection === connection ? this.#latest : null
    if (latest === null && this.#sealed.has(connection)) return
    if (this.#count >= mostPending) {
      this.#dropped++
      return
    }
    this.#count++
    this.#latest = latest ?? { connection, jobs: this.#jobsOf(connection) }
    this.#latest.jobs.push(job)
    this.#delivering ??= this.#deliverLater()
  }

  #jobsOf(connection: Connection): Job[] {
    const known = this.#pending.get(connection)
    if (known !== undefined) return known
    const added: Job[] = []
    this.#pending.set(connection, added)
    return added
  }

  /** Whether `settle` has something to do. */
  get hasPending(): boolean {
    return this.#delivering !== null || this.#count > 0
  }

  /** Delivers what is pending, if anything is; the error that prevented it, else `null`. */
  async settle(): Promise<unknown> {
    if (this.#delivering !== null) await this.#delivering
    return this.#count === 0 ? null : await this.#deliver()
  }

  /** Delivers what is pending. Later ends of this connection are ignored. */
  async seal(connection: Connection): Promise<void> {
    if (connection.recorded === undefined) return
    await this.settle()
    this.#sealed.add(connection)
    this.#latest = null
  }

  /** Warns of what could not be delivered; called when all connections are sealed. */
  async close(): Promise<void> {
    const error = await this.settle()
    const left = this.#count + this.#dropped
    if (left === 0) return
    const text = `backends were not told that the ends of ${countText(left, 'task')} are recorded`
    const lost = this.#lostLines
    const why = lost === 0 ? 'there were too many' : `${lost} lines of the record are lost`
    this.#parts.log.warn('EndsNotRecorded', `${text}: ${error === null ? why : messageOf(error)}`)
  }

  async #deliverLater(): Promise<void> {
    await new Promise<void>((resolve) => this.#parts.clock.nextTurn(resolve))
    const error = await this.#deliver()
    // After a failure the next end tries again.
    this.#delivering = error === null && this.#count > 0 ? this.#deliverLater() : null
  }

  /**
   * One flush for all that is pending; what could not be flushed stays pending. When lines were
   * lost, nobody knows whose: what was pending then is never reported as recorded.
   */
  async #deliver(): Promise<unknown> {
    const batches = this.#pending
    if (batches.size === 0) return null
    this.#replacePending(new Map())
    const count = this.#count
    try {
      await this.record?.flush()
    } catch (error) {
      if (this.#dropAfterLoss()) return null
      for (const [connection, jobs] of this.#pending) {
        batches.set(connection, [...(batches.get(connection) ?? []), ...jobs])
      }
      this.#replacePending(batches)
      return error
    }
    if (this.#dropAfterLoss()) return null
    this.#count -= count
    for (const [connection, jobs] of batches) this.#report(connection, jobs)
    return null
  }

  #replacePending(pending: Map<Connection, Job[]>): void {
    this.#pending = pending
    this.#latest = null
  }

  /** True when lines were lost since the last call: all that is pending is given up then. */
  #dropAfterLoss(): boolean {
    const { lostLines = 0 } = this.record ?? {}
    if (lostLines === this.#lostLines) return false
    this.#lostLines = lostLines
    this.#dropped += this.#count
    this.#count = 0
    this.#replacePending(new Map())
    return true
  }

  /** A backend that throws here must not end the process, nor keep others from their ends. */
  #report(connection: Connection, jobs: readonly Job[]): void {
    const warn = (error: unknown): void => {
      const text = `recorded() of a backend threw: ${messageOf(error)}`
      this.#parts.log.warn('EndsNotRecorded', text)
    }
    try {
      const returned: unknown = connection.recorded?.(jobs)
      if (isThenable(returned)) returned.then(undefined, warn)
    } catch (error) {
      warn(error)
    }
  }
}
