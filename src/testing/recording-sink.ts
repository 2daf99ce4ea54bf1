/** A sink for tests: records events, so that a test can assert exactly what was emitted. */

import { AssertionError } from 'node:assert'
import type { BaseEvent } from '../events/event.ts'
import type { EventSink } from '../events/sink.ts'

interface Waiter {
  readonly matches: (event: BaseEvent) => boolean
  readonly resolve: (event: BaseEvent) => void
}

/**
 * Keeps events in order. A test takes what it expects, then asserts that nothing is left.
 *
 * @example
 * const sink = new RecordingSink()
 * emitTwoEvents(sink)
 * sink.take('TaskStarted')
 * sink.take('TaskCompleted')
 * sink.expectNothingMore()
 */
export class RecordingSink implements EventSink {
  readonly events: BaseEvent[] = []
  #taken = 0
  #waiters: Waiter[] = []

  /** Keeps the event. */
  emit(event: BaseEvent): void {
    this.events.push(event)
    const ready = this.#waiters.filter((waiter) => waiter.matches(event))
    this.#waiters = this.#waiters.filter((waiter) => !ready.includes(waiter))
    for (const waiter of ready) waiter.resolve(event)
  }

  /** Takes the next event; fails if there is none or if it has another type. */
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

  /** Resolves with the first matching event, whether already recorded or emitted later. */
  waitFor(matches: (event: BaseEvent) => boolean): Promise<BaseEvent> {
    const known = this.events.find(matches)
    if (known !== undefined) return Promise.resolve(known)
    return new Promise((resolve) => this.#waiters.push({ matches, resolve }))
  }

  /** Fails if there are events that were not taken. */
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
