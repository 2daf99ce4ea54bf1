/** Events as an async iterator. Only this kind of subscription may drop events; it counts them. */

import type { TelemetryEvent } from '../events/vocabulary.ts'
import { Fifo } from '../runtime/fifo.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectOneOf,
  invalid,
} from '../foundation/options.ts'

/** Which events a stream delivers, and what it does when its reader is slow. */
export interface EventStreamOptions {
  /** The event types to deliver. Default: all. */
  readonly types?: readonly string[]
  /** With `drop-oldest`, the maximum number of events that wait for the reader. Default 1000. */
  readonly limit?: number
  /**
   * The behavior beyond the limit: `drop-oldest` (default) drops and counts; `block` keeps every
   * event in this stream's own queue. Neither delays other subscribers.
   */
  readonly overflow?: 'drop-oldest' | 'block'
}

interface ResolvedOptions {
  readonly types: ReadonlySet<string> | null
  readonly limit: number
  readonly overflow: 'drop-oldest' | 'block'
}

/** A stream of events, which ends when telemetry stops or the reader breaks out of its loop. */
export class EventStream implements AsyncIterableIterator<TelemetryEvent> {
  readonly #options: ResolvedOptions
  readonly #unsubscribe: () => void
  readonly #waiting = new Fifo<TelemetryEvent>()
  #readers: ((result: IteratorResult<TelemetryEvent>) => void)[] = []
  #hasEnded = false
  #dropped = 0

  constructor(
    options: EventStreamOptions,
    subscribe: (listen: (event: TelemetryEvent) => void) => () => void,
  ) {
    this.#options = resolveEventStreamOptions(options)
    this.#unsubscribe = subscribe((event) => this.#deliver(event))
  }

  /** The number of events that were dropped because the reader was too slow. */
  get dropped(): number {
    return this.#dropped
  }

  /** Waits for the next event. */
  next(): Promise<IteratorResult<TelemetryEvent>> {
    const event = this.#waiting.shift()
    if (event !== undefined) return Promise.resolve({ done: false, value: event })
    if (this.#hasEnded) return Promise.resolve({ done: true, value: undefined })
    return new Promise((resolve) => this.#readers.push(resolve))
  }

  /** Ends the stream, as leaving a `for await` loop does. Waiting events are dropped. */
  return(): Promise<IteratorResult<TelemetryEvent>> {
    this.#waiting.clear()
    this.end()
    return Promise.resolve({ done: true, value: undefined })
  }

  /** Called when no more events will come. Waiting events can still be read. */
  end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#unsubscribe()
    for (const reader of this.#readers) reader({ done: true, value: undefined })
    this.#readers = []
  }

  /** Returns the stream itself, for `for await`. */
  [Symbol.asyncIterator](): this {
    return this
  }

  #deliver(event: TelemetryEvent): void {
    const { types, limit, overflow } = this.#options
    if (types !== null && !types.has(event.event_type)) return
    const reader = this.#readers.shift()
    if (reader !== undefined) {
      reader({ done: false, value: event })
      return
    }
    this.#waiting.push(event)
    if (overflow === 'block' || this.#waiting.length <= limit) return
    this.#waiting.shift()
    this.#dropped++
  }
}

function resolveEventStreamOptions(options: EventStreamOptions): ResolvedOptions {
  expectObject('options', options)
  expectKnownKeys('events()', options, ['types', 'limit', 'overflow'])
  const { types, limit = 1000, overflow = 'drop-oldest' } = options
  if (types !== undefined && !Array.isArray(types)) {
    throw invalid('types', 'an array of event types', types)
  }
  return {
    types: types === undefined ? null : new Set(types),
    limit: expectInteger('limit', limit, { min: 1 }),
    overflow: expectOneOf('overflow', overflow, ['drop-oldest', 'block']),
  }
}
