/** A sink that keeps what it gets, for tests that say exactly what must be emitted. */

import { AssertionError } from 'node:assert'
import type { BaseEvent } from '../events/event.ts'
import type { EventSink } from '../events/sink.ts'

interface Waiter {
  readonly matches: (event: BaseEvent) => boolean
  readonly resolve: (event: BaseEvent) => void
}

/**
 * Keeps events in order of emission. Tests take what they expect, then assert that nothing is left.
 */
export class RecordingSink implements EventSink {
  readonly events: BaseEvent[] = []
  #taken = 0
  #waiters: Waiter[] = []

  emit(event: BaseEvent): void {
    this.events.push(event)
    const ready = this.#waiters.filter((waiter) => waiter.matches(event))
    this.#waiters = this.#waiters.filter((waiter) => !ready.includes(waiter))
    for (const waiter of ready) waiter.resolve(event)
  }

  /** The next event that was not taken yet; fails when there is none or it has another type. */
  take(eventType: string): BaseEvent {
    const event = this.events[this.#taken]
    if (event?.event_type !== eventType) {
      const actual = event?.event_type ?? 'nothing'
      throw new AssertionError({
        message: `Expected ${eventType} as event ${this.#taken}, got ${actual}`,
        actual,
        expected: eventType,
      })
    }
    this.#taken++
    return event
  }

  /** Resolves with the first event, past or future, for which `matches` is true. */
  waitFor(matches: (event: BaseEvent) => boolean): Promise<BaseEvent> {
    const known = this.events.find(matches)
    if (known !== undefined) return Promise.resolve(known)
    return new Promise((resolve) => this.#waiters.push({ matches, resolve }))
  }

  /** Fails when events were emitted that no `take` asked for. */
  expectNothingMore(): void {
    const rest = this.events.slice(this.#taken).map((event) => event.event_type)
    if (rest.length > 0) {
      throw new AssertionError({
        message: `Expected nothing more, got ${rest.join(', ')}`,
        actual: rest,
        expected: [],
      })
    }
  }
}
