/** Shares one abort listener per AbortSignal. */

import { messageOf } from '../foundation/errors.ts'

interface Registration<T> {
  readonly items: Set<T>
  readonly listener: () => void
}

/**
 * Node scans a signal's listeners whenever one is added, so one per item would take quadratic time.
 */
export class AbortRegistry<T> {
  readonly #registrations = new Map<AbortSignal, Registration<T>>()
  readonly #onAbort: (item: T) => void

  /** `onAbort` is called for each registered item whose signal is aborted. */
  constructor(onAbort: (item: T) => void) {
    this.#onAbort = onAbort
  }

  watch(signal: AbortSignal, item: T): void {
    const registration = this.#registrations.get(signal) ?? this.#listen(signal)
    registration.items.add(item)
  }

  forget(signal: AbortSignal, item: T): void {
    const registration = this.#registrations.get(signal)
    if (registration === undefined) return
    registration.items.delete(item)
    if (registration.items.size > 0) return
    signal.removeEventListener('abort', registration.listener)
    this.#registrations.delete(signal)
  }

  #listen(signal: AbortSignal): Registration<T> {
    const items = new Set<T>()
    // Iterates over the live set, so an item that an earlier callback removed is skipped.
    const listener = (): void => items.forEach((item) => this.#onAbort(item))
    const registration = { items, listener }
    this.#registrations.set(signal, registration)
    signal.addEventListener('abort', listener)
    return registration
  }
}

/** The signal's abort reason as text. */
export function abortReason(signal: AbortSignal): string {
  const { reason } = signal as { reason: unknown }
  return reason === undefined ? 'aborted' : messageOf(reason)
}
