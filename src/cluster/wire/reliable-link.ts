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
    this.#publish(subject, number, payload)
    return number
  }

  receive(subject: string, data: Uint8Array): void {
    const { receiveKey, epoch, onMessage, onRefused } = this.#options
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
    if (message.number !== this.#received + 1) return
    this.#received++
    onMessage(message.payload)
  }

  /** Sends again what was not acknowledged in time, and acknowledgements that are due. */
  tick(): void {
    const nowMs = this.#options.clock.monotonicMs()
    if (this.#unacknowledged.length > 0 && nowMs - this.#progressMs >= resendAfterMs) this.resend()
    else if (this.#told < this.#received) this.#publish(this.#options.idleSubject, 0, nothing)
  }

  /** Sends everything again that was not acknowledged: after a connection was down. */
  resend(): void {
    this.#progressMs = this.#options.clock.monotonicMs()
    for (const { subject, number, payload } of this.#unacknowledged) {
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
    for (;;) {
      const first = this.#unacknowledged.peek()
      if (first === undefined || first.number > acknowledged) return
      this.#unacknowledged.shift()
      this.#unacknowledgedBytes -= first.payload.length
      this.#progressMs = this.#heardMs
    }
  }

  #publish(subject: string, number: number, payload: Buffer): void {
    const { sendKey, epoch } = this.#options
    const header = { epoch, number, acknowledged: this.#received }
    this.#told = this.#received
    this.#options.publish(subject, sealBytes(sendKey, subject, header, payload))
  }
}

/** The serialized `undefined`. */
const nothing = Buffer.from([0xff, 0x0f, 0x5f])
/** The serialized `true`: something is missing. */
const missing = Buffer.from([0xff, 0x0f, 0x54])
