/** Tells backends which ends of attempts are recorded, so that a remote one may forget them. */

import type { Connection, Job } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { isThenable } from '../foundation/promises.ts'
import { countText } from '../views/readable.ts'

/** More ends than this are not kept while the checkpoint cannot be written. */
const maxPending = 100_000

/** The record to which the ends are written. */
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
 * Includes every attempt whose end the ledger has processed, also one that is retried. The ends of
 * one turn of the loop form one batch per connection; with a checkpoint, a flush precedes each
 * batch. Connections without `recorded` cause no work.
 */
export class RecordedEnds {
  /** `null` without a checkpoint. */
  record: EndsRecord | null = null
  readonly #parts: RecordedEndsParts
  #pending = new Map<Connection, Job[]>()
  /** The entry of `#pending` that was used last: most consecutive ends are of one backend. */
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
    if (this.#count >= maxPending) {
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

  /** Delivers pending ends. Resolves with the error that prevented it, or with `null`. */
  async settle(): Promise<unknown> {
    if (this.#delivering !== null) await this.#delivering
    return this.#count === 0 ? null : await this.#deliver()
  }

  /** Delivers pending ends. Later ends of this connection are ignored. */
  async seal(connection: Connection): Promise<void> {
    if (connection.recorded === undefined) return
    await this.settle()
    this.#sealed.add(connection)
    this.#latest = null
  }

  /** Warns about ends that could not be delivered. Called when all connections are sealed. */
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
    // After a failure, the next end triggers another attempt.
    this.#delivering = error === null && this.#count > 0 ? this.#deliverLater() : null
  }

  /**
   * Flushes once for all pending ends; if that fails, they stay pending. If lines were lost, it is
   * unknown which: all ends that were pending are never reported as recorded.
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

  /** `true` if lines were lost since the last call; all pending ends are then dropped. */
  #dropAfterLoss(): boolean {
    const { lostLines = 0 } = this.record ?? {}
    if (lostLines === this.#lostLines) return false
    this.#lostLines = lostLines
    this.#dropped += this.#count
    this.#count = 0
    this.#replacePending(new Map())
    return true
  }

  /** A backend that throws must neither end the process nor keep others from being told. */
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
