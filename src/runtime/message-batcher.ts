/** Collects messages into batches: one crossing of a process border for many of them. */

import type { Clock } from '../foundation/clock.ts'

export interface MessageBatcherOptions<T> {
  readonly clock: Clock
  /**
   * Sends one batch; `onSent` is called when it has left this process, or never will. May throw,
   * for what cannot be cloned: the batch is dropped then.
   */
  send(messages: readonly T[], onSent: () => void): void
  /** The least time between two flushes that are not urgent. Default 0. */
  readonly minIntervalMs?: number
  /** Batches on their way; with more, `flush` asks its caller to wait. Default: no limit. */
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

  /** Messages that were not sent yet. */
  get size(): number {
    return this.#messages.length
  }

  /** Sent with the next flush, whoever asks for it. */
  hold(message: T): void {
    this.#messages.push(message)
  }

  /** Sent in the next turn of the loop, in one batch with all messages of this turn. */
  post(message: T): void {
    this.#messages.push(message)
    this.flushSoon()
  }

  /** Sent at once, after all that was held or posted before. */
  send(message: T): void {
    this.#messages.push(message)
    void this.flush()
  }

  /** Takes back the first message that matches and was not sent yet; `false` without one. */
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
   * Sends what is held; unless it is urgent, only if the last flush is long enough ago. Returns a
   * promise when too many batches are on their way: it resolves when one of them has been sent.
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

  /** Resolves when everything has left this process. */
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
