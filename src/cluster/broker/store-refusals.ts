/** Whether an object that is refused by a full store would ever fit. */

import type { Clock } from '../../foundation/clock.ts'
import type { StoreFullError } from './broker.ts'

/** Fewer in a row say little: what others have stored comes and goes. */
const fewestRefusals = 5

/**
 * The tries to store one object. A server tells its own limit to nobody. What is known after a
 * refusal is how much it had for the account, and even that may have changed by the time the answer
 * comes. So an object counts as too large only when more of it was missing, at every try for a
 * whole while, than everything else of the account could make room for, or when it is larger than
 * the limit that the account has.
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

  /** What the account has of other things before the next try. */
  before(heldBytes: number): void {
    this.#heldBefore = heldBytes
  }

  /** A try failed for another reason: the server may be another one by now. */
  forget(): void {
    this.#count = 0
  }

  /** Why the object will not fit, or `null` while it may. */
  refused({ heldBytes, storedBytes, neededBytes, limitBytes }: StoreFullError): string | null {
    if (limitBytes !== null && this.#bytes > limitBytes) return `is limited to ${limitBytes} bytes`
    const nowMs = this.#clock.monotonicMs()
    const mostBytes = Math.max(heldBytes, this.#heldBefore + storedBytes)
    if (neededBytes <= mostBytes) this.#count = 0
    else if (this.#count++ === 0) this.#fromMs = nowMs
    const forMs = nowMs - this.#fromMs
    if (this.#count < fewestRefusals || !(forMs >= this.#patienceMs())) return null
    const seconds = Math.floor(forMs / 1000)
    return `has had room for at most ${mostBytes} bytes for the last ${seconds} s`
  }
}
