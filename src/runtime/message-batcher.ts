/** Collects messages into batches, so that many of them cross a process border at once. */

import type { Clock } from '../foundation/clock.ts'

export interface MessageBatcherOptions<T> {
  readonly clock: Clock
  /**
   * Sends one batch; `onSent` is called when it has left this process, or never will. May throw if
   * the batch cannot be cloned; it is then dropped.
   */
  send(messages: readonly T[], onSent: () => void): void
  /** The least time between two flushes that are not urgent. Default 0. */
  readonly minIntervalMs?: number
  /** The most batches in transit; above it, `flush` asks its caller to wait. Default: no limit. */
  readonly maxInFlight?: number
}

/** Keeps the order of the messages. */
export class MessageBatcher<T> {
  readonly #options: MessageBatcherOptions<T>
  #messages: T[] = []
  #isScheduled = false
  #flushedMs = -Infinity
  #inFlight = 0
  #sent: PromiseWithResolvers<void> | null = null

  constructor(options: MessageBatcherOptions<T>) {
    this.#options = options
  }

  /** The number of messages that were not sent yet. */
  get size(): number {
    return this.#messages.length
  }

  /** Sent with the next flush, whatever causes it. */
  hold(message: T): void {
    this.#messages.push(message)
  }

  /** Sent in the next turn of the loop, in one batch with all messages of this turn. */
  post(message: T): void {
    this.#messages.push(message)
    this.flushSoon()
  }

  /** Sent at once, after everything that was held or posted before. */
  send(message: T): void {
    this.#messages.push(message)
    void this.flush()
  }

  /** Takes back the first message that matches and was not sent yet; `false` if there is none. */
  withdraw(matches: (message: T) => boolean): boolean {
    const at = this.#messages.findIndex(matches)
    if (at !== -1) this.#messages.splice(at, 1)
    return at !== -1
  }

  flushSoon(): void {
    if (this.#isScheduled || this.#messages.length === 0) return
    this.#isScheduled = true
    this.#options.clock.nextTurn(() => {
      this.#isScheduled = false
      void this.flush()
    })
  }

  /**
   * Sends the held messages; if it is not urgent, only if the last flush was long enough ago.
   * Returns a promise if too many batches are in transit; it resolves when one of them was sent.
   */
  flush(isUrgent = true): Promise<void> | undefined {
    if (this.#messages.length === 0) return undefined
    const { clock, minIntervalMs = 0, maxInFlight = Infinity } = this.#options
    if (minIntervalMs > 0) {
      const nowMs = clock.monotonicMs()
      if (!isUrgent && nowMs - this.#flushedMs < minIntervalMs) return undefined
      this.#flushedMs = nowMs
    }
    const messages = this.#messages
    this.#messages = []
    this.#inFlight++
    try {
      this.#options.send(messages, () => this.#onSent())
    } catch (error) {
      this.#onSent()
      throw error
    }
    return this.#inFlight < maxInFlight ? undefined : this.#nextSent()
  }

  /** Resolves when all messages have left this process. */
  async drain(): Promise<void> {
    void this.flush()
    while (this.#inFlight > 0) await this.#nextSent()
  }

  #nextSent(): Promise<void> {
    this.#sent ??= Promise.withResolvers()
    return this.#sent.promise
  }

  #onSent(): void {
    this.#inFlight--
    this.#sent?.resolve()
    this.#sent = null
  }
}
