/** Messages that an agent keeps: events until they are acknowledged, results until recorded. */

import type { ObjectToStore } from '../../broker/stored-objects.ts'

interface KeptEvents {
  readonly order: number
  readonly link: number
  readonly number: number
  readonly payload: Buffer
}

export interface KeptResults {
  order: number
  /** The number of the message among those with results. */
  readonly number: number
  /** How many results the message has. */
  readonly results: number
  /** `null` if only the number is kept. There is no `object` then. */
  payload: Buffer | null
  /** The stored object to which the message refers. */
  object: ObjectToStore | null
  state: 'unstored' | 'appending' | 'stored'
  /** Whether the store may have lost the object, which no driver has read. */
  mayLackObject: boolean
}

/** A message that is sent again on a new link. */
export type ResentMessage =
  | { readonly events: KeptEvents; readonly results: null }
  | { readonly events: null; readonly results: KeptResults }

/**
 * Above this total size of results no further attempts begin. Results of running attempts are still
 * added. Events are dropped above this size of unacknowledged ones.
 */
export const maxKeptBytes = 64 * 1024 * 1024

export class KeptMessages {
  #events: KeptEvents[] = []
  #eventBytes = 0
  readonly #results = new Map<number, KeptResults>()
  #resultBytes = 0
  #order = 0
  #takenThrough = 0
  #recordedThrough = 0
  /** Messages with results that the driver could not record. They must stay in the stream. */
  readonly #unrecordable = new Set<number>()

  addEvents(link: number, number: number, payload: Buffer): void {
    this.#events.push({ order: ++this.#order, link, number, payload })
    this.#eventBytes += payload.length
  }

  /** The payloads with events that no driver has acknowledged. */
  get events(): readonly Buffer[] {
    return this.#events.map(({ payload }) => payload)
  }

  get hasEvents(): boolean {
    return this.#events.length > 0
  }

  get eventBytes(): number {
    return this.#eventBytes
  }

  /** Forgets events that were sent on this link up to this number. */
  acknowledgeEvents(link: number, through: number): void {
    const [first] = this.#events
    if (first === undefined || first.link !== link || first.number > through) return
    this.#events = this.#events.filter((one) => one.link !== link || one.number > through)
    this.#eventBytes = this.#events.reduce((sum, { payload }) => sum + payload.length, 0)
  }

  addResults(message: Omit<KeptResults, 'order' | 'state' | 'mayLackObject'>): KeptResults {
    const order = ++this.#order
    const kept: KeptResults = { ...message, order, state: 'unstored', mayLackObject: false }
    this.#results.set(message.number, kept)
    this.#resultBytes += countBytes(kept)
    this.#trim()
    return kept
  }

  getResults(number: number): KeptResults | undefined {
    return this.#results.get(number)
  }

  get isFull(): boolean {
    return this.#resultBytes > maxKeptBytes
  }

  /** Messages whose contents the stream does not have. */
  get unstored(): readonly KeptResults[] {
    return [...this.#results.values()].filter((one) => one.state !== 'stored' && one.payload)
  }

  markStored(number: number): void {
    const kept = this.#results.get(number)
    if (kept === undefined) return
    kept.state = 'stored'
    if (this.#hasPassed(number)) this.#remove(kept)
    this.#trim()
  }

  /** The stream may have lost everything. */
  markAllUnstored(): void {
    for (const kept of this.#results.values()) {
      if (kept.payload === null) continue
      kept.state = 'unstored'
      kept.mayLackObject = kept.object !== null && kept.number > this.#takenThrough
    }
  }

  /**
   * Forgets stored messages up to number `through`, and later the others once they are stored: a
   * restarted driver reads them from the stream. Results in `lost` messages were not recorded.
   */
  markRecorded(through: number, taken: number, lost: readonly number[] = []): void {
    this.#recordedThrough = Math.max(this.#recordedThrough, through)
    this.#takenThrough = Math.max(this.#takenThrough, taken)
    for (const number of lost) this.#unrecordable.add(number)
    for (const kept of this.#results.values()) {
      if (kept.number > through) break
      if (kept.state === 'stored') this.#remove(kept)
    }
    this.#trim()
  }

  /** Whether the stream need not keep the message with this number. */
  isRecorded(number: number): boolean {
    return this.#hasPassed(number) && !this.#unrecordable.has(number) && !this.#results.has(number)
  }

  /**
   * Takes the messages to send again in their order: all events, and results with numbers above
   * `taken`. The events are no longer kept.
   */
  takeResent(taken: number): readonly ResentMessage[] {
    const results = [...this.#results.values()].filter(
      ({ number, payload }) => number > taken && payload !== null,
    )
    const all: ResentMessage[] = [
      ...this.#events.map((events) => ({ events, results: null })),
      ...results.map((one) => ({ events: null, results: one })),
    ]
    this.clearEvents()
    return all.toSorted((a, b) => orderOf(a) - orderOf(b))
  }

  /** Called when a message is sent again: later it comes again after those sent before it. */
  renewOrder(results: KeptResults): void {
    results.order = ++this.#order
  }

  /** A later driver has taken nothing yet. */
  resetTaken(): void {
    this.#takenThrough = 0
  }

  clearEvents(): void {
    this.#events = []
    this.#eventBytes = 0
  }

  clear(): void {
    this.clearEvents()
    this.#results.clear()
    this.#resultBytes = 0
  }

  #hasPassed(number: number): boolean {
    return number <= this.#recordedThrough
  }

  /** Drops the oldest contents that both the stream and the driver have, until there is room. */
  #trim(): void {
    if (!this.isFull) return
    for (const kept of this.#results.values()) {
      if (kept.number > this.#takenThrough || !this.isFull) return
      if (kept.state === 'stored') this.#dropContent(kept)
    }
  }

  #remove(kept: KeptResults): void {
    this.#dropContent(kept)
    this.#results.delete(kept.number)
  }

  #dropContent(kept: KeptResults): void {
    if (kept.payload !== null) this.#resultBytes -= countBytes(kept)
    kept.payload = null
    kept.object = null
  }
}

const orderOf = ({ events, results }: ResentMessage): number => (events ?? results).order

const countBytes = ({ payload, object }: KeptResults): number =>
  (payload?.length ?? 0) + (object?.data.length ?? 0)
