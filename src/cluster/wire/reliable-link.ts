/**
 * Delivers messages between two processes once and in order, over a broker that loses messages
 * while a connection is down. It has no timer: its owner calls `tick`.
 */

import { Fifo } from '../../runtime/fifo.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { type Header, type Key, open, sealBytes } from './envelope.ts'

export interface ReliableLinkOptions {
  readonly clock: Clock
  readonly sendKey: Key
  readonly receiveKey: Key
  /** Identifies the link; messages with another epoch are ignored. */
  readonly epoch: number
  /** The subject of messages that carry only an acknowledgement. */
  readonly idleSubject: string
  readonly publish: (subject: string, data: Buffer) => void
  /** If this throws, the message counts as refused. */
  readonly onMessage: (payload: unknown) => void
  /** Called with the reason when a message is not accepted. */
  readonly onRefused: (reason: string) => void
}

export interface SentMessage {
  readonly number: number
  readonly payload: Buffer
}

interface Unacknowledged extends SentMessage {
  readonly subject: string
}

/** Unacknowledged messages are sent again after this time. */
const resendAfterMs = 1000
/** The minimum time between two requests for missing messages, and between two resends. */
const askAfterMs = 100
/** The maximum number of bytes that are resent before some of them are acknowledged. */
const windowBytes = 1024 * 1024
/**
 * After this many bytes an acknowledgement is sent immediately, otherwise with the next message or
 * tick.
 */
const acknowledgeBytes = 128 * 1024

export class ReliableLink {
  readonly #options: ReliableLinkOptions
  readonly #unacknowledged = new Fifo<Unacknowledged>()
  #unacknowledgedBytes = 0
  #sent = 0
  #received = 0
  /** The last message number that was acknowledged to the other side. */
  #acknowledgedThrough = 0
  #progressMs: number
  #heardMs: number
  /** Bytes received since the last acknowledgement was sent. */
  #receivedBytes = 0
  /** The messages still to be resent; none if `#resendLast` is less than `#resendNext`. */
  #resendNext = 1
  #resendLast = 0
  #askedMs = -Infinity
  #resentMs = -Infinity

  constructor(options: ReliableLinkOptions) {
    this.#options = options
    this.#progressMs = options.clock.monotonicMs()
    this.#heardMs = this.#progressMs
  }

  /** When the last valid message arrived. */
  get heardMs(): number {
    return this.#heardMs
  }

  /** Messages whose arrival is not confirmed, in order. */
  get unacknowledged(): readonly SentMessage[] {
    return [...this.#unacknowledged]
  }

  /** The total size of the payloads in `unacknowledged`. */
  get unacknowledgedBytes(): number {
    return this.#unacknowledgedBytes
  }

  /** The number of the last message that was received in order. */
  get received(): number {
    return this.#received
  }

  /** Whether the other side has confirmed this message and all before it. */
  isAcknowledged(number: number): boolean {
    return number < (this.#unacknowledged.peek()?.number ?? Infinity)
  }

  /** Sends a serialized payload; returns its number. */
  send(subject: string, payload: Buffer): number {
    const number = ++this.#sent
    if (this.#unacknowledged.length === 0) this.#progressMs = this.#options.clock.monotonicMs()
    this.#unacknowledged.push({ subject, number, payload })
    this.#unacknowledgedBytes += payload.length
    // During a resend, new messages are queued, because they would be refused out of order.
    if (this.#resendNext <= this.#resendLast) this.#resendLast = number
    else this.#publish(subject, number, payload)
    return number
  }

  receive(subject: string, data: Uint8Array): void {
    const { receiveKey, epoch, idleSubject, onMessage, onRefused } = this.#options
    let message
    try {
      message = open(receiveKey, subject, data)
    } catch (error) {
      return onRefused(messageOf(error))
    }
    // The message is genuine, but the sender did not know this link yet, or did not know that its
    // own link was replaced, for example after a disconnect.
    if (message.epoch !== epoch) return
    this.#heardMs = this.#options.clock.monotonicMs()
    this.#acknowledge(message)
    if (message.number === 0) return message.payload === true ? this.#sendMissing() : undefined
    // A gap needs a resend; a duplicate shows that the acknowledgement was lost.
    if (message.number > this.#received + 1) this.askForMissing()
    else if (message.number <= this.#received)
      this.#acknowledgedThrough = Math.min(this.#acknowledgedThrough, message.number - 1)
    if (message.number !== this.#received + 1) return
    this.#received++
    this.#receivedBytes += data.length
    if (this.#receivedBytes > acknowledgeBytes) this.#publish(idleSubject, 0, nothing)
    try {
      onMessage(message.payload)
    } catch (error) {
      onRefused(messageOf(error))
    }
  }

  /** Resends messages that were not acknowledged in time, or acknowledges received ones. */
  tick(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (this.#unacknowledged.length > 0 && nowMs - this.#progressMs >= resendAfterMs) this.resend()
    else if (this.#acknowledgedThrough < this.#received)
      this.#publish(this.#options.idleSubject, 0, nothing)
  }

  /**
   * Resends all unacknowledged messages, for example after a disconnect. Resends one window at a
   * time, so that a slow receiver does not get the same messages repeatedly.
   */
  resend(): void {
    this.#progressMs = this.#options.clock.monotonicMs()
    this.#resendNext = this.#unacknowledged.peek()?.number ?? this.#sent + 1
    this.#resendLast = this.#sent
    this.#sendWindow()
  }

  #sendWindow(): void {
    let bytes = 0
    for (const { subject, number, payload } of this.#unacknowledged) {
      if (number > this.#resendLast || (bytes > 0 && bytes + payload.length > windowBytes)) return
      bytes += payload.length
      if (number < this.#resendNext) continue
      this.#resendNext = number + 1
      this.#publish(subject, number, payload)
    }
  }

  /** Requests a resend when the other side has sent more messages than were received. */
  askForMissing(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (nowMs - this.#askedMs < askAfterMs) return
    this.#askedMs = nowMs
    this.#publish(this.#options.idleSubject, 0, missing)
  }

  #sendMissing(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (nowMs - this.#resentMs < askAfterMs) return
    this.#resentMs = nowMs
    this.resend()
  }

  #acknowledge({ acknowledged }: Header): void {
    for (let isNew = false; ; isNew = true) {
      const first = this.#unacknowledged.peek()
      if (first === undefined || first.number > acknowledged) {
        if (isNew && this.#resendNext <= this.#resendLast) this.#sendAfter(acknowledged)
        return
      }
      this.#unacknowledged.shift()
      this.#unacknowledgedBytes -= first.payload.length
      this.#progressMs = this.#heardMs
    }
  }

  #sendAfter(acknowledged: number): void {
    this.#resendNext = Math.max(this.#resendNext, acknowledged + 1)
    this.#sendWindow()
  }

  #publish(subject: string, number: number, payload: Buffer): void {
    const { sendKey, epoch } = this.#options
    const header = { epoch, number, acknowledged: this.#received }
    this.#acknowledgedThrough = this.#received
    this.#receivedBytes = 0
    this.#options.publish(subject, sealBytes(sendKey, subject, header, payload))
  }
}

/** The serialized `undefined`. */
const nothing = Buffer.from([0xff, 0x0f, 0x5f])
/** The serialized `true`, which requests missing messages. */
const missing = Buffer.from([0xff, 0x0f, 0x54])
