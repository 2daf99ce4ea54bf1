/**
 * Messages with results that no driver has recorded. The stream has stored most of them, but if the
 * server loses its store, they are sent again from here.
 */

import type { ObjectToStore, StoredObjects } from '../broker/stored-objects.ts'

/** The storage for results. */
export interface EndsStore {
  /** Stores values that are too large for a message. */
  readonly objects: StoredObjects
  /** Recreates the stream if the server has lost it; `false` if there is no stream of this run. */
  openStream(): Promise<boolean>
  /** Removes data that the stream does not need; `false` if there is none. */
  makeRoom(): Promise<boolean>
}

export interface EndsData {
  readonly number: number
  readonly data: Buffer
  /** The tasks whose results are in the message. */
  readonly uids: readonly string[]
  /** The stored objects that the message refers to: values, outputs, errors. */
  readonly objects: readonly ObjectToStore[]
}

interface KeptMessage {
  /** `null` if the content was dropped and only the task ids are kept. */
  content: EndsData | null
  readonly uids: readonly string[]
  isStored: boolean
}

/** Above this size no further attempts begin; only the results of running ones are added. */
const maxBytes = 64 * 1024 * 1024

export class UnrecordedResults {
  readonly #messages = new Map<number, KeptMessage>()
  #bytes = 0
  #takenThrough = 0
  #recordedThrough = 0
  /** Messages with results that the driver could not record. Only the stream has them. */
  readonly #lost = new Set<number>()

  add(content: EndsData): void {
    this.#messages.set(content.number, { content, uids: content.uids, isStored: false })
    this.#bytes += bytesOf(content)
    this.#trim()
  }

  /** Numbers of the messages that no driver has recorded and that can still be sent again. */
  get numbers(): readonly number[] {
    return [...this.#messages].filter(isWhole).map(([number]) => number)
  }

  /** Whether the result of this task was dropped here, so that only the stream may have it. */
  hasGivenUp(uid: string): boolean {
    for (const { content, uids } of this.#messages.values()) {
      if (content === null && uids.includes(uid)) return true
    }
    return false
  }

  /** Whether there is only room for the results of attempts that run now. */
  get isFull(): boolean {
    return this.#bytes > maxBytes
  }

  /** All messages that can still be sent again. */
  get contents(): readonly EndsData[] {
    const contents: EndsData[] = []
    for (const { content } of this.#messages.values()) if (content !== null) contents.push(content)
    return contents
  }

  get unstored(): readonly EndsData[] {
    const contents: EndsData[] = []
    for (const { content, isStored } of this.#messages.values()) {
      if (!isStored && content !== null) contents.push(content)
    }
    return contents
  }

  /** Whether the message is not stored in the stream yet. */
  isUnstored(number: number): boolean {
    return this.#messages.get(number)?.isStored === false
  }

  /** The stream has stored the message. */
  stored(number: number): void {
    const message = this.#messages.get(number)
    if (message !== undefined) message.isStored = true
    this.#trim()
  }

  /**
   * The driver has recorded all results in messages up to this number, except in `lost` ones.
   * Returns their tasks.
   */
  recorded(through: number, lost: readonly number[] = []): readonly string[] {
    this.#recordedThrough = Math.max(this.#recordedThrough, through)
    for (const number of lost) this.#lost.add(number)
    const uids: string[] = []
    for (const [number, message] of this.#messages) {
      if (number > through) break
      // Keeps the message until it is stored, because a restarted driver reads it from the stream.
      if (!message.isStored) continue
      this.#drop(message)
      this.#messages.delete(number)
      uids.push(...message.uids)
    }
    return uids
  }

  /**
   * Whether nobody needs the message anymore: not the driver, not a restarted driver, not this
   * agent.
   */
  isRecorded(number: number): boolean {
    if (this.#lost.has(number)) return false
    return number <= this.#recordedThrough && !this.#messages.has(number)
  }

  /** The driver has received all results in messages up to this number, with their values. */
  taken(through: number): void {
    this.#takenThrough = Math.max(this.#takenThrough, through)
    this.#trim()
  }

  /** Returns messages that the stream has lost, and marks them as not stored. */
  takeLost(from: number, to: number): readonly EndsData[] {
    const lost: EndsData[] = []
    for (const [number, message] of this.#messages) {
      if (number < from || number > to || !message.isStored || message.content === null) continue
      message.isStored = false
      lost.push(message.content)
    }
    return lost
  }

  clear(): void {
    this.#messages.clear()
    this.#bytes = 0
  }

  /** Drops contents that both the stream and the driver have, oldest first, until there is room. */
  #trim(): void {
    if (!this.isFull) return
    for (const [number, message] of this.#messages) {
      if (number > this.#takenThrough || !this.isFull) return
      if (message.isStored) this.#drop(message)
    }
  }

  #drop(message: KeptMessage): void {
    if (message.content !== null) this.#bytes -= bytesOf(message.content)
    message.content = null
  }
}

const isWhole = ([, { content }]: [number, KeptMessage]): boolean => content !== null

const bytesOf = ({ data, objects }: EndsData): number =>
  objects.reduce((sum, object) => sum + object.data.length, data.length)
