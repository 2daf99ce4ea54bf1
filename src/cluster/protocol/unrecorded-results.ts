/**
 * Keeps messages with results that no driver has recorded. They are sent again if the server loses
 * its store.
 */

import type { ObjectToStore } from '../broker/stored-objects.ts'

export interface SealedResults {
  readonly number: number
  readonly data: Buffer
  readonly uids: readonly string[]
  readonly objects: readonly ObjectToStore[]
}

interface KeptMessage {
  /** `null` if the content was dropped and only the task ids are kept. */
  content: SealedResults | null
  readonly uids: readonly string[]
  isStored: boolean
}

/** Above this total size no further attempts begin. Results of running attempts are still added. */
const maxBytes = 64 * 1024 * 1024

export class UnrecordedResults {
  readonly #messages = new Map<number, KeptMessage>()
  #bytes = 0
  #receivedThrough = 0
  #recordedThrough = 0
  /** Messages with results that the driver could not record. They must stay in the stream. */
  readonly #unrecordable = new Set<number>()

  add(content: SealedResults): void {
    this.#messages.set(content.number, { content, uids: content.uids, isStored: false })
    this.#bytes += countBytes(content)
    this.#trim()
  }

  get numbers(): readonly number[] {
    return this.contents.map(({ number }) => number)
  }

  /** Whether this object no longer keeps the task's result. The stream may still have it. */
  isDropped(uid: string): boolean {
    for (const { content, uids } of this.#messages.values()) {
      if (content === null && uids.includes(uid)) return true
    }
    return false
  }

  get isFull(): boolean {
    return this.#bytes > maxBytes
  }

  get contents(): readonly SealedResults[] {
    return [...this.#messages.values()].flatMap(({ content }) => content ?? [])
  }

  get unstored(): readonly SealedResults[] {
    const unstored = [...this.#messages.values()].filter(({ isStored }) => !isStored)
    return unstored.flatMap(({ content }) => content ?? [])
  }

  isUnstored(number: number): boolean {
    return this.#messages.get(number)?.isStored === false
  }

  markStored(number: number): void {
    const message = this.#messages.get(number)
    if (message !== undefined) message.isStored = true
    this.#trim()
  }

  /**
   * Drops stored messages up to number `through`, and returns their tasks. Results in `lost`
   * messages were not recorded, so the stream must keep these messages.
   */
  markRecorded(through: number, lost: readonly number[] = []): readonly string[] {
    this.#recordedThrough = Math.max(this.#recordedThrough, through)
    for (const number of lost) this.#unrecordable.add(number)
    const uids: string[] = []
    for (const [number, message] of this.#messages) {
      if (number > through) break
      // Keeps a message until it is stored, because a restarted driver reads it from the stream.
      if (!message.isStored) continue
      this.#drop(message)
      this.#messages.delete(number)
      uids.push(...message.uids)
    }
    return uids
  }

  isRecorded(number: number): boolean {
    if (this.#unrecordable.has(number)) return false
    return number <= this.#recordedThrough && !this.#messages.has(number)
  }

  /**
   * Marks the messages up to this number: the driver has received them and read their stored
   * values.
   */
  markReceived(through: number): void {
    this.#receivedThrough = Math.max(this.#receivedThrough, through)
    this.#trim()
  }

  markLost(from: number, to: number): readonly SealedResults[] {
    const lost: SealedResults[] = []
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

  /** Drops the oldest contents that both the stream and the driver have, until there is room. */
  #trim(): void {
    if (!this.isFull) return
    for (const [number, message] of this.#messages) {
      if (number > this.#receivedThrough || !this.isFull) return
      if (message.isStored) this.#drop(message)
    }
  }

  #drop(message: KeptMessage): void {
    if (message.content !== null) this.#bytes -= countBytes(message.content)
    message.content = null
  }
}

const countBytes = ({ data, objects }: SealedResults): number =>
  objects.reduce((sum, object) => sum + object.data.length, data.length)
