/**
 * Delivers messages once and in order, over a broker that loses messages. The link has no timer:
 * its owner must call `tick` regularly.
 */

import { Fifo } from '../../runtime/fifo.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { type Header, type Key, open, sealBytes } from './envelope.ts'

export interface ReliableLinkOptions {
  readonly clock: Clock
  readonly sendKey: Key
  readonly receiveKey: Key
  /** Identifies the link. Messages with another epoch are ignored. */
  readonly epoch: number
  /** The subject of messages that contain only an acknowledgement. */
  readonly idleSubject: string
  readonly publish: (subject: string, data: Buffer) => void
  /** Called with each message. If it throws, the message counts as refused. */
  readonly onMessage: (payload: unknown) => void
  readonly onRefused: (reason: string) => void
}

export interface SentMessage {
  readonly number: number
  readonly payload: Buffer
}

const ackTimeoutMs = 1000
/** The minimum time between two requests for missing messages, and between two resends. */
const requestIntervalMs = 100
/** The maximum number of bytes that are resent before some of them are acknowledged. */
const resendWindowBytes = 1024 * 1024
/** After this many received bytes, an acknowledgement is sent immediately. */
const maxUnacknowledgedBytes = 128 * 1024

export class ReliableLink {
  readonly #options: ReliableLinkOptions
  readonly #unacknowledged = new Fifo<SentMessage & { readonly subject: string }>()
  #unacknowledgedBytes = 0
  #sent = 0
  #received = 0
  /** The last message number that was acknowledged to the other side. */
  #acknowledgedThrough = 0
  #progressMs: number
  #lastHeardMs: number
  #receivedBytes = 0
  /** The first and last message to resend. There are none if the first exceeds the last. */
  #resendNext = 1
  #resendLast = 0
  #requestedMs = -Infinity
  #resentMs = -Infinity

  constructor(options: ReliableLinkOptions) {
    this.#options = options
    this.#progressMs = options.clock.monotonicMs()
    this.#lastHeardMs = this.#progressMs
  }

  get lastHeardMs(): number {
    return this.#lastHeardMs
  }

  get unacknowledged(): readonly SentMessage[] {
    return [...this.#unacknowledged]
  }

  get unacknowledgedBytes(): number {
    return this.#unacknowledgedBytes
  }

  /** The number of the last message that was received in order. */
  get received(): number {
    return this.#received
  }

  /** Whether the other side has acknowledged this message and all before it. */
  isAcknowledged(number: number): boolean {
    return number < (this.#unacknowledged.peek()?.number ?? Infinity)
  }

  send(subject: string, payload: Buffer): number {
    const number = ++this.#sent
    if (this.#unacknowledged.length === 0) this.#progressMs = this.#options.clock.monotonicMs()
    this.#unacknowledged.push({ subject, number, payload })
    this.#unacknowledgedBytes += payload.length
    // During a resend, new messages are queued, because messages out of order would be refused.
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
    // Ignores a genuine message of another link, such as the link before a reconnect.
    if (message.epoch !== epoch) return
    this.#lastHeardMs = this.#options.clock.monotonicMs()
    this.#handleAcknowledgement(message)
    if (message.number === 0)
      return message.payload === true ? this.#handleResendRequest() : undefined
    // A gap requires a resend. A duplicate shows that the acknowledgement was lost.
    if (message.number > this.#received + 1) this.requestMissing()
    else if (message.number <= this.#received)
      this.#acknowledgedThrough = Math.min(this.#acknowledgedThrough, message.number - 1)
    if (message.number !== this.#received + 1) return
    this.#received++
    this.#receivedBytes += data.length
    if (this.#receivedBytes > maxUnacknowledgedBytes) this.#publish(idleSubject, 0, emptyPayload)
    try {
      onMessage(message.payload)
    } catch (error) {
      onRefused(messageOf(error))
    }
  }

  tick(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (this.#unacknowledged.length > 0 && nowMs - this.#progressMs >= ackTimeoutMs) this.resend()
    else if (this.#acknowledgedThrough < this.#received)
      this.#publish(this.#options.idleSubject, 0, emptyPayload)
  }

  /** Resends one window of messages at a time: a slow receiver must not get them repeatedly. */
  resend(): void {
    this.#progressMs = this.#options.clock.monotonicMs()
    this.#resendNext = this.#unacknowledged.peek()?.number ?? this.#sent + 1
    this.#resendLast = this.#sent
    this.#sendWindow()
  }

  #sendWindow(): void {
    let bytes = 0
    for (const { subject, number, payload } of this.#unacknowledged) {
      if (number > this.#resendLast || (bytes > 0 && bytes + payload.length > resendWindowBytes))
        return
      bytes += payload.length
      if (number < this.#resendNext) continue
      this.#resendNext = number + 1
      this.#publish(subject, number, payload)
    }
  }

  requestMissing(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (nowMs - this.#requestedMs < requestIntervalMs) return
    this.#requestedMs = nowMs
    this.#publish(this.#options.idleSubject, 0, resendRequest)
  }

  #handleResendRequest(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (nowMs - this.#resentMs < requestIntervalMs) return
    this.#resentMs = nowMs
    this.resend()
  }

  #handleAcknowledgement({ acknowledged }: Header): void {
    for (let isNew = false; ; isNew = true) {
      const first = this.#unacknowledged.peek()
      if (first === undefined || first.number > acknowledged) {
        if (isNew && this.#resendNext <= this.#resendLast) this.#continueResend(acknowledged)
        return
      }
      this.#unacknowledged.shift()
      this.#unacknowledgedBytes -= first.payload.length
      this.#progressMs = this.#lastHeardMs
    }
  }

  #continueResend(acknowledged: number): void {
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
const emptyPayload = Buffer.from([0xff, 0x0f, 0x5f])
/** The serialized `true`, which requests missing messages. */
const resendRequest = Buffer.from([0xff, 0x0f, 0x54])
