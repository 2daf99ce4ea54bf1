/** Decides whether an object that a full store refuses could ever fit. */

import type { Clock } from '../../foundation/clock.ts'
import type { StoreFullError } from './broker.ts'

/** Fewer refusals in a row prove little: what others store comes and goes. */
const fewestRefusals = 5

/**
 * The attempts to store one object. A server does not tell its own limit. A refusal only tells how
 * much the account stored, and even that may have changed by the time the answer arrives. So an
 * object counts as too large only if, at every attempt for a whole while, it needed more than the
 * account stored in all, so that removing everything else would not have been enough; or if it
 * exceeds the account's limit.
 */
export class StoreRefusals {
  readonly #clock: Clock
  readonly #bytes: number
  readonly #patienceMs: () => number
  #count = 0
  #fromMs = 0
  #heldBefore = 0

  constructor(clock: Clock, bytes: number, patienceMs: () => number) {
    this.#clock = clock
    this.#bytes = bytes
    this.#patienceMs = patienceMs
  }

  /** Sets how much else the account stores, before the next attempt. */
  before(heldBytes: number): void {
    this.#heldBefore = heldBytes
  }

  /** An attempt failed for another reason: the server may be another one by now. */
  forget(): void {
    this.#count = 0
  }

  /** Counts a refusal. Returns why the object will not fit, or `null` while it may. */
  refused({ heldBytes, storedBytes, neededBytes, limitBytes }: StoreFullError): string | null {
    if (limitBytes !== null && this.#bytes > limitBytes) return `is limited to ${limitBytes} bytes`
    const nowMs = this.#clock.monotonicMs()
    const maxBytes = Math.max(heldBytes, this.#heldBefore + storedBytes)
    if (neededBytes <= maxBytes) this.#count = 0
    else if (this.#count++ === 0) this.#fromMs = nowMs
    const forMs = nowMs - this.#fromMs
    if (this.#count < fewestRefusals || !(forMs >= this.#patienceMs())) return null
    const seconds = Math.floor(forMs / 1000)
    return `has had room for at most ${maxBytes} bytes for the last ${seconds} s`
  }
}
