/**
 * Numbers the messages of a link between a driver and an agent, in both directions, and notices
 * gaps. A link with a gap is never repaired: the driver replaces it by a new one.
 */

import type { Header } from '../wire/envelope.ts'
import type { Message } from '../wire/messages.ts'

/** A link whose messages were not acknowledged for this long is broken. */
const acknowledgementTimeoutMs = 1000

export class Link {
  readonly id: number
  #sent = 0
  /** The last message that the other side has acknowledged. */
  #acknowledged = 0
  #received = 0
  /** The last message that was acknowledged to the other side. */
  #confirmed = 0
  /** When everything was last acknowledged, or something was. */
  #progressMs: number
  #lastHeardMs: number
  #isBroken = false

  constructor(id: number, nowMs: number) {
    this.id = id
    this.#progressMs = nowMs
    this.#lastHeardMs = nowMs
  }

  get sent(): number {
    return this.#sent
  }

  get received(): number {
    return this.#received
  }

  get acknowledged(): number {
    return this.#acknowledged
  }

  get lastHeardMs(): number {
    return this.#lastHeardMs
  }

  get isBroken(): boolean {
    return this.#isBroken
  }

  break(): void {
    this.#isBroken = true
  }

  /** Returns the header of the next numbered message. */
  nextHeader(nowMs: number): Header {
    if (this.#acknowledged === this.#sent) this.#progressMs = nowMs
    this.#confirmed = this.#received
    return { scope: this.id, number: ++this.#sent, acknowledged: this.#received }
  }

  /** Whether the numbered message is the next one, which the caller must apply. */
  receive({ number, acknowledged }: Header, nowMs: number): boolean {
    this.#handleAcknowledgement(acknowledged, nowMs)
    if (this.#isBroken || number <= this.#received) return false
    if (number > this.#received + 1) {
      this.#isBroken = true
      return false
    }
    this.#received++
    return true
  }

  receiveIdle({ acknowledged }: Header, { isBroken }: Message<'idle'>, nowMs: number): void {
    this.#handleAcknowledgement(acknowledged, nowMs)
    this.#isBroken ||= isBroken
  }

  /**
   * Returns an unnumbered message if one side may lack something. Called at intervals. The link is
   * broken if the other side acknowledges nothing for too long.
   */
  tick(nowMs: number): { readonly header: Header; readonly message: Message<'idle'> } | null {
    const isWaiting = this.#acknowledged < this.#sent
    if (isWaiting && nowMs - this.#progressMs >= acknowledgementTimeoutMs) this.#isBroken = true
    if (!isWaiting && this.#confirmed === this.#received && !this.#isBroken) return null
    this.#confirmed = this.#received
    return {
      header: { scope: this.id, number: 0, acknowledged: this.#received },
      message: { kind: 'idle', isBroken: this.#isBroken },
    }
  }

  #handleAcknowledgement(acknowledged: number, nowMs: number): void {
    this.#lastHeardMs = nowMs
    if (acknowledged <= this.#acknowledged) return
    this.#acknowledged = acknowledged
    this.#progressMs = nowMs
  }
}
