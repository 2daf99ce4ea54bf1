/**
 * Batches messages between this process and its child processes and threads, and wraps them in
 * envelopes. Both sides run code of this package, so messages are not validated. A random channel
 * id distinguishes these messages from those of user code in the child.
 */

import type { Clock } from '../foundation/clock.ts'

/**
 * The version of the protocol. Both sides normally belong to the same installation. Different
 * versions mean that the installation was replaced while this process ran.
 */
export const channelVersion = 1

/** The variable that passes the channel id to a child. The child deletes it immediately. */
export const channelVariable = 'TUTTI_CHANNEL'

/** A batch of messages, or `ready` (sent once by the child), or `end` (asks the child to exit). */
export type ChannelContent<T> = readonly T[] | 'ready' | 'end'

export type Envelope<T> = readonly [channel: number, version: number, content: ChannelContent<T>]

export function toEnvelope<T>(channel: number, content: ChannelContent<T>): Envelope<T> {
  return [channel, channelVersion, content]
}

/**
 * Returns the content of a message; `null` if the message belongs to another channel. Throws for
 * another protocol version. Does not validate the content.
 */
export function openEnvelope(channel: number, received: unknown): ChannelContent<unknown> | null {
  if (!Array.isArray(received) || received[0] !== channel) return null
  const [, version, content] = received as unknown as Envelope<unknown>
  if (version === channelVersion) return content
  throw new Error(`the other end has version ${version} of the protocol, not ${channelVersion}`)
}

/**
 * Ignores invalid internal messages. User code may send messages that Node treats as internal, such
 * as `{ cmd: 'NODE_HANDLE_ACK' }`, and Node's listener throws for them.
 */
export function guardInternalMessages(emitter: NodeJS.EventEmitter, onIgnored: () => void): void {
  const listeners = emitter.rawListeners('internalMessage')
  emitter.removeAllListeners('internalMessage')
  emitter.on('internalMessage', (...received: unknown[]) => {
    try {
      for (const listener of listeners) Reflect.apply(listener, emitter, received)
    } catch {
      onIgnored()
    }
  })
}

export interface MessageBatcherOptions<T> {
  readonly clock: Clock
  /**
   * Sends one batch, and calls `onSent` when the batch has left this process or was dropped. May
   * throw if the batch cannot be cloned. The batch is then dropped.
   */
  send(messages: readonly T[], onSent: () => void): void
  /** The minimum time between two flushes that are not urgent. Default 0. */
  readonly minIntervalMs?: number
  /** At this number of batches in transit, `flush` returns a promise. Default: no limit. */
  readonly maxInFlight?: number
}

/** Collects messages and sends them in batches, in order. */
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

  get size(): number {
    return this.#messages.length
  }

  /** Adds a message to the next flush. Does not schedule a flush. */
  enqueue(message: T): void {
    this.#messages.push(message)
  }

  /** Sends a message in the next turn of the loop, in one batch with all messages of this turn. */
  post(message: T): void {
    this.#messages.push(message)
    this.flushSoon()
  }

  /** Sends a message immediately, after all unsent messages. */
  send(message: T): void {
    this.#messages.push(message)
    void this.flush()
  }

  /** Removes the first unsent message that matches. Returns `false` if there is none. */
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
   * Sends all unsent messages. A flush that is not urgent does nothing within `minIntervalMs` of
   * the last flush. If too many batches are in transit, returns a promise that resolves when one of
   * them was sent.
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
