/** Which of an agent's messages with results have arrived, were passed on, and are recorded. */

import { NumberSet, type NumberRange } from './number-set.ts'

/** What an agent reports about its messages with results when a driver attaches to it. */
export interface ResultsState {
  /** Identifies the session on the agent, which numbers its messages up to `endMessages`. */
  readonly endsEpoch: number
  readonly endMessages: number
  /** The numbers of the messages that the agent keeps, because no driver has recorded them. */
  readonly unrecorded: readonly number[]
}

/** What the driver tells an agent about its messages with results. */
export interface ResultsReport {
  /** All results of the messages up to this number are recorded, or will never be. */
  readonly through: number
  /** All results of the messages up to this number were passed to the session. */
  readonly taken: number
  /** Messages up to `through` with a result that could not be recorded. */
  readonly lost?: readonly number[]
}

/**
 * The number of later messages after which an unread message for an earlier start of the driver is
 * given up.
 */
const maxLaterMessages = 1000
/**
 * Above this total size, results are confirmed immediately, because an agent with a full store
 * begins no tasks.
 */
const maxUnconfirmedBytes = 64 * 1024

export class AgentResults {
  /** Identifies the session on the agent, which numbers its messages from 1 to `sent`. */
  epoch = 0
  /** The number of messages that the agent is known to have sent. */
  sent = 0
  /** Messages that have arrived, over any link to this start of the agent. */
  #received = new NumberSet()
  /** Messages whose results, including their values, were passed to the session. */
  readonly #delivered = new NumberSet()
  readonly #recorded = new NumberSet()
  /** Messages with unrecordable results that were not reported to the agent yet. */
  #lost: number[] = []
  /**
   * Messages for an earlier start of the driver that refer to stored objects. The objects were not
   * read, so the agent must keep them.
   */
  readonly #unread = new Set<number>()
  #reportedRecorded = 0
  #reportedDelivered = 0
  #unreportedBytes = 0
  #earlierThrough = 0
  #expectedThrough = 0
  #missingThrough = 0

  /**
   * `received` has the numbers of the messages that have arrived. `unread` has those whose objects
   * were not read. `isFirst` is `true` if this start of the driver has not used this session of the
   * agent before.
   */
  attach(
    received: NumberSet,
    { endsEpoch, endMessages, unrecorded }: ResultsState,
    isFirst: boolean,
    unread: ReadonlySet<number> = new Set(),
  ): void {
    this.#received = received
    this.epoch = endsEpoch
    this.sent = endMessages
    this.#earlierThrough = isFirst ? endMessages : 0
    received.addRange({ from: 1, to: endMessages }, unrecorded)
    const missing = new Set(unrecorded)
    // A message that the agent sent after its answer may arrive before the answer.
    const kept = [...unread].filter(
      (number) => received.has(number) && (number > endMessages || missing.has(number)),
    )
    for (const number of kept) this.keepUnread(number)
    this.#delivered.addAll(received)
    this.#recorded.addAll(received, kept)
    const first = unrecorded.reduce((min, number) => Math.min(min, number), endMessages + 1)
    this.#reportedRecorded = first - 1
    this.#reportedDelivered = first - 1
    this.#missingThrough = endMessages
    this.#expectedThrough = endMessages
  }

  isFromEarlierStart(number: number): boolean {
    return number <= this.#earlierThrough
  }

  /** Whether results for an earlier start of the driver have not arrived. */
  get isMissingEarlier(): boolean {
    return this.#received.through < this.#earlierThrough
  }

  /**
   * Whether messages are missing that the agent had sent before the previous call. Later messages
   * may still be in transit.
   */
  isMissing(): boolean {
    this.#missingThrough = this.#expectedThrough
    this.#expectedThrough = this.sent
    return this.missing !== null
  }

  /** The messages that the agent must send again; `null` if none is missing. */
  get missing(): NumberRange | null {
    const from = this.#received.through + 1
    return from > this.#missingThrough ? null : { from, to: this.#missingThrough }
  }

  /** Marks a message whose results, including their values, were passed to the session. */
  markDelivered(number: number, bytes: number): void {
    this.#delivered.add(number)
    this.#unreportedBytes += bytes
  }

  markRecorded(number: number): void {
    this.#recorded.add(number)
  }

  /** Marks a message whose results could not be recorded. Only the stream keeps it. */
  markLost(number: number): void {
    this.#lost.push(number)
    this.#recorded.add(number)
  }

  /** Marks a message of which no result will be recorded anymore. */
  markSettled(number: number): void {
    this.#delivered.add(number)
    this.#recorded.add(number)
  }

  /**
   * Marks a message that refers to objects. The agent keeps it until the task of the result is
   * recorded.
   */
  keepUnread(number: number): void {
    this.#delivered.add(number)
    this.#unread.add(number)
  }

  isUnread(number: number): boolean {
    return this.#unread.has(number)
  }

  /** Gives up unread messages whose tasks were not submitted again for a long time. */
  giveUpUnread(): void {
    for (const number of this.#unread) {
      if (this.sent <= Math.max(number, this.#earlierThrough) + maxLaterMessages) continue
      this.#unread.delete(number)
      this.markSettled(number)
    }
  }

  get isReportUrgent(): boolean {
    return this.#unreportedBytes > maxUnconfirmedBytes
  }

  /** Returns what the agent was not told yet; `null` if there is nothing. */
  takeReport(): ResultsReport | null {
    const [through, taken] = [this.#recorded.through, this.#delivered.through]
    this.#unreportedBytes = 0
    if (through <= this.#reportedRecorded && taken <= this.#reportedDelivered) return null
    this.#reportedRecorded = through
    this.#reportedDelivered = taken
    const lost = this.#lost
    this.#lost = []
    return { through, taken, ...(lost.length === 0 ? {} : { lost }) }
  }
}
