/** Reports to backends which results are recorded, so that backends need not keep these results. */

import type { Connection, Job } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import { isThenable } from '../foundation/promises.ts'
import { countText } from '../views/readable.ts'

/** The maximum number of results that are pending while the checkpoint cannot be written. */
const maxPending = 100_000

export interface DurableRecord {
  /** Resolves when all lines written so far are durable, except lost lines. */
  flush(): Promise<void>
  readonly lostLines: number
}

/**
 * Reports every ended attempt to its backend, even if the task is retried, in one batch per turn of
 * the event loop. Flushes the checkpoint, if there is one, before each batch.
 */
export class RecordedAttempts {
  record: DurableRecord | null = null
  readonly #parts: { readonly clock: Clock; readonly log: Log }
  #pending = new Map<Connection, Job[]>()
  #count = 0
  #dropped = 0
  #lostLines = 0
  #delivering: Promise<void> | null = null
  readonly #sealed = new WeakSet<Connection>()

  constructor(parts: { readonly clock: Clock; readonly log: Log }) {
    this.#parts = parts
  }

  add(connection: Connection, job: Job): void {
    if (connection.recorded === undefined) return
    if (this.#sealed.has(connection)) return
    if (this.#count >= maxPending) {
      this.#dropped++
      return
    }
    this.#count++
    const batch = this.#pending.get(connection)
    if (batch === undefined) this.#pending.set(connection, [job])
    else batch.push(job)
    this.#delivering ??= this.#deliverLater()
  }

  get hasPending(): boolean {
    return this.#delivering !== null || this.#count > 0
  }

  /**
   * Reports all pending results. Resolves with `null`, or with the error that prevented the report.
   */
  async settle(): Promise<unknown> {
    if (this.#delivering !== null) await this.#delivering
    return this.#count === 0 ? null : await this.#deliver()
  }

  /** Reports pending results. From then on, results of this connection are ignored. */
  async seal(connection: Connection): Promise<void> {
    if (connection.recorded === undefined) return
    await this.settle()
    this.#sealed.add(connection)
  }

  async close(): Promise<void> {
    const error = await this.settle()
    const unreported = this.#count + this.#dropped
    if (unreported === 0) return
    const text = `backends were not notified of ${countText(unreported, 'recorded result')}`
    const lost = this.#lostLines
    const why = lost === 0 ? 'there were too many' : `${lost} lines of the record are lost`
    this.#parts.log.warn('EndsNotRecorded', `${text}: ${error === null ? why : messageOf(error)}`)
  }

  async #deliverLater(): Promise<void> {
    await new Promise<void>((resolve) => this.#parts.clock.nextTurn(resolve))
    const error = await this.#deliver()
    // After a failure, the next call of `add` tries again.
    this.#delivering = error === null && this.#count > 0 ? this.#deliverLater() : null
  }

  /**
   * Flushes the checkpoint, then reports the pending results. If flushing fails, they stay pending.
   * If lines were lost, reports none, because it is unknown which lines were lost.
   */
  async #deliver(): Promise<unknown> {
    const batches = this.#pending
    if (batches.size === 0) return null
    this.#pending = new Map()
    const count = this.#count
    try {
      await this.record?.flush()
    } catch (error) {
      if (this.#dropAfterLoss()) return null
      for (const [connection, jobs] of this.#pending) {
        batches.set(connection, [...(batches.get(connection) ?? []), ...jobs])
      }
      this.#pending = batches
      return error
    }
    if (this.#dropAfterLoss()) return null
    this.#count -= count
    for (const [connection, jobs] of batches) this.#report(connection, jobs)
    return null
  }

  #dropAfterLoss(): boolean {
    const { lostLines = 0 } = this.record ?? {}
    if (lostLines === this.#lostLines) return false
    this.#lostLines = lostLines
    this.#dropped += this.#count
    this.#count = 0
    this.#pending = new Map()
    return true
  }

  /** A backend that throws must neither end the process nor prevent the other reports. */
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
