/** An event sink for tests that assert exactly which events were emitted. */

import { AssertionError } from 'node:assert'
import type { BaseEvent } from '../events/event.ts'
import type { EventSink } from '../events/sink.ts'
import { Waiters } from './waiters.ts'

/**
 * Records events. A test takes the expected events in order, then asserts that none is left.
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
  #takenCount = 0
  readonly #waiters = new Waiters()

  emit(event: BaseEvent): void {
    this.events.push(event)
    this.#waiters.wake()
  }

  /** Returns the next event. Fails if there is none or if it has a different type. */
  take(eventType: string): BaseEvent {
    const event = this.events[this.#takenCount]
    if (event?.event_type !== eventType) {
      const actual = event?.event_type ?? 'nothing'
      throw new AssertionError({
        message: `Expected ${eventType} as event ${this.#takenCount}, got ${actual}`,
        actual,
        expected: eventType,
      })
    }
    this.#takenCount++
    return event
  }

  /** Resolves with the first matching event, which may be emitted later. */
  async waitFor(matches: (event: BaseEvent) => boolean): Promise<BaseEvent> {
    let found: BaseEvent | undefined
    await this.#waiters.until(() => (found = this.events.find(matches)) !== undefined)
    return found as BaseEvent
  }

  /** Fails if some events were not taken. */
  expectNothingMore(): void {
    const rest = this.events.slice(this.#takenCount).map((event) => event.event_type)
    if (rest.length > 0) {
      throw new AssertionError({
        message: `Expected nothing more, got ${rest.join(', ')}`,
        actual: rest,
        expected: [],
      })
    }
  }
}
