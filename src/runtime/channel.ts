/**
 * Messages between this process and its own child processes and threads: batches, so that many
 * messages are sent in one call, and their envelopes. No schema validates them, because both sides
 * are this package. The random channel id distinguishes them from messages of user code, which uses
 * the same pipe in the child.
 */

import type { Clock } from '../foundation/clock.ts'

/**
 * Both sides come from one installation. A different version means that it was replaced meanwhile.
 */
export const channelVersion = 1

/** The environment variable that passes the channel id to a child, which deletes it immediately. */
export const channelVariable = 'TUTTI_CHANNEL'

/** `ready`: sent once by the child. `end`: the parent asks the child to exit. Otherwise a batch. */
export type ChannelContent<T> = readonly T[] | 'ready' | 'end'

/** Version and channel are sent once per batch, not per message. */
export type Envelope<T> = readonly [channel: number, version: number, content: ChannelContent<T>]

export function toEnvelope<T>(channel: number, content: ChannelContent<T>): Envelope<T> {
  return [channel, channelVersion, content]
}

/**
 * Returns `null` for a message of another channel. Throws for another protocol version. The type of
 * the messages is not checked.
 */
export function openEnvelope(channel: number, received: unknown): ChannelContent<unknown> | null {
  if (!Array.isArray(received) || received[0] !== channel) return null
  const [, version, content] = received as unknown as Envelope<unknown>
  if (version === channelVersion) return content
  throw new Error(`the other end has version ${version} of the protocol, not ${channelVersion}`)
}

/**
 * User code may send messages that Node treats as internal, such as `{ cmd: 'NODE_HANDLE_ACK' }`.
 * Node's listener on either side throws for them, which would crash the process.
 */
export function guardInternalMessages(end: NodeJS.EventEmitter, onIgnored: () => void): void {
  const own = end.rawListeners('internalMessage')
  end.removeAllListeners('internalMessage')
  end.on('internalMessage', (...received: unknown[]) => {
    try {
      for (const listener of own) Reflect.apply(listener, end, received)
    } catch {
      onIgnored()
    }
  })
}

export interface MessageBatcherOptions<T> {
  readonly clock: Clock
  /**
   * Sends one batch. `onSent` is called when the batch has left this process or has been dropped.
   * May throw if the batch cannot be cloned, which drops it.
   */
  send(messages: readonly T[], onSent: () => void): void
  /** The minimum time between two flushes that are not urgent. Default 0. */
  readonly minIntervalMs?: number
  /**
   * The maximum number of batches in transit. Above it, `flush` asks its caller to wait. Default:
   * no limit.
   */
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

  /** The number of unsent messages. */
  get size(): number {
    return this.#messages.length
  }

  /** Adds a message to the next flush, without causing one. */
  hold(message: T): void {
    this.#messages.push(message)
  }

  /** Sends a message in the next turn of the loop, in one batch with all messages of this turn. */
  post(message: T): void {
    this.#messages.push(message)
    this.flushSoon()
  }

  /** Sends a message immediately, after everything that was held or posted before. */
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
   * Sends the held messages. A flush that is not urgent does nothing within `minIntervalMs` of the
   * last one. If too many batches are in transit, returns a promise that resolves when one was
   * sent.
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
