/** Shares one abort listener per AbortSignal. */

import { messageOf } from '../foundation/errors.ts'

interface Registration<T> {
  readonly items: Set<T>
  readonly listener: () => void
}

/**
 * Calls back for each item whose signal is aborted. Adds one listener per signal: Node scans a
 * signal's listeners whenever one is added, so one listener per item would take quadratic time.
 */
export class AbortRegistry<T> {
  readonly #registrations = new Map<AbortSignal, Registration<T>>()
  readonly #onAbort: (item: T) => void

  constructor(onAbort: (item: T) => void) {
    this.#onAbort = onAbort
  }

  add(signal: AbortSignal, item: T): void {
    const registration = this.#registrations.get(signal) ?? this.#listen(signal)
    registration.items.add(item)
  }

  remove(signal: AbortSignal, item: T): void {
    const registration = this.#registrations.get(signal)
    if (registration === undefined) return
    registration.items.delete(item)
    if (registration.items.size > 0) return
    signal.removeEventListener('abort', registration.listener)
    this.#registrations.delete(signal)
  }

  #listen(signal: AbortSignal): Registration<T> {
    const items = new Set<T>()
    // Iterates over the live set, which skips items that an earlier callback removed.
    const listener = (): void => items.forEach((item) => this.#onAbort(item))
    const registration = { items, listener }
    this.#registrations.set(signal, registration)
    signal.addEventListener('abort', listener)
    return registration
  }
}

export function abortReason(signal: AbortSignal): string {
  const { reason } = signal as { reason: unknown }
  return reason === undefined ? 'aborted' : messageOf(reason)
}
