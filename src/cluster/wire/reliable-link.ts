/**
 * Messages between two processes that arrive once and in order, over a broker that loses what is
 * published while a connection is down. It has no timer: its owner calls `tick`.
 */

import { Fifo } from '../../runtime/fifo.ts'
import type { Clock } from '../../foundation/clock.ts'
import { type Header, type Key, open, sealBytes } from './envelope.ts'

export interface ReliableLinkOptions {
  readonly clock: Clock
  readonly sendKey: Key
  readonly receiveKey: Key
  /** Names the link; messages of another one are refused. */
  readonly epoch: number
  /** For messages that carry nothing but an acknowledgement. */
  readonly idleSubject: string
  readonly publish: (subject: string, data: Buffer) => void
  readonly onMessage: (payload: unknown) => void
  /** A message that is not accepted, and why. */
  readonly onRefused: (reason: string) => void
}

export interface SentMessage {
  readonly number: number
  readonly payload: Buffer
}

interface Unacknowledged extends SentMessage {
  readonly subject: string
}

/** Without an acknowledgement for this long, what was sent is sent again. */
const resendAfterMs = 1000
/** The least time between two requests for what is missing, and between two answers to them. */
const askAfterMs = 100
/** So much is sent again before something of it is acknowledged. */
const windowBytes = 1024 * 1024
/** What came is acknowledged at once after so much, and else with the next message or tick. */
const acknowledgeBytes = 128 * 1024

/** Why a message is refused that was meant for an earlier use of the other side. */
export const earlierConnection = 'it belongs to an earlier connection'

export class ReliableLink {
  readonly #options: ReliableLinkOptions
  readonly #unacknowledged = new Fifo<Unacknowledged>()
  #unacknowledgedBytes = 0
  #sent = 0
  #received = 0
  /** The last `acknowledged` that was told to the other side. */
  #told = 0
  #progressMs: number
  #heardMs: number
  /** Bytes that came since the last acknowledgement. */
  #untoldBytes = 0
  /** The next message that is sent again, and the last one; nothing is if that comes before. */
  #resendNext = 1
  #resendLast = 0
  #askedMs = -Infinity
  #resentMs = -Infinity

  constructor(options: ReliableLinkOptions) {
    this.#options = options
    this.#progressMs = options.clock.monotonicMs()
    this.#heardMs = this.#progressMs
  }

  /** When the last valid message came. */
  get heardMs(): number {
    return this.#heardMs
  }

  /** What the other side is not known to have, in order. */
  get unacknowledged(): readonly SentMessage[] {
    return [...this.#unacknowledged]
  }

  /** How large they are. */
  get unacknowledgedBytes(): number {
    return this.#unacknowledgedBytes
  }

  /** The number of the last message that came in order. */
  get received(): number {
    return this.#received
  }

  /** Whether the other side is known to have a message and all before it. */
  isAcknowledged(number: number): boolean {
    return number < (this.#unacknowledged.peek()?.number ?? Infinity)
  }

  /** Sends a serialized payload; returns its number. */
  send(subject: string, payload: Buffer): number {
    const number = ++this.#sent
    if (this.#unacknowledged.length === 0) this.#progressMs = this.#options.clock.monotonicMs()
    this.#unacknowledged.push({ subject, number, payload })
    this.#unacknowledgedBytes += payload.length
    // Behind what is sent again: it would be refused.
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
      return onRefused((error as Error).message)
    }
    if (message.epoch !== epoch) return onRefused(earlierConnection)
    this.#heardMs = this.#options.clock.monotonicMs()
    this.#acknowledge(message)
    if (message.number === 0) return message.payload === true ? this.#sendMissing() : undefined
    // One that was sent again, or one after a gap.
    if (message.number > this.#received + 1) this.askForMissing()
    else if (message.number <= this.#received) this.#told = Math.min(this.#told, message.number - 1)
    if (message.number !== this.#received + 1) return
    this.#received++
    this.#untoldBytes += data.length
    if (this.#untoldBytes > acknowledgeBytes) this.#publish(idleSubject, 0, nothing)
    onMessage(message.payload)
  }

  /** Sends again what was not acknowledged in time, and acknowledgements that are due. */
  tick(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (this.#unacknowledged.length > 0 && nowMs - this.#progressMs >= resendAfterMs) this.resend()
    else if (this.#told < this.#received) this.#publish(this.#options.idleSubject, 0, nothing)
  }

  /**
   * Sends everything again that was not acknowledged: after a connection was down. A part of it at
   * a time: the other side may be slow, and what it has not taken yet would be sent once more.
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

  /** The other side has sent more than has come. */
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
    this.#told = this.#received
    this.#untoldBytes = 0
    this.#options.publish(subject, sealBytes(sendKey, subject, header, payload))
  }
}

/** The serialized `undefined`. */
const nothing = Buffer.from([0xff, 0x0f, 0x5f])
/** The serialized `true`: something is missing. */
const missing = Buffer.from([0xff, 0x0f, 0x54])
