/**
 * Events as an async iterator: the only way of listening that may drop, and it counts what it
 * drops.
 */

import type { BaseEvent } from '../events/event.ts'
import { expectInteger, expectKnownKeys, expectOneOf, invalid } from '../foundation/options.ts'

export interface EventStreamOptions {
  /** Only these event types; all by default. */
  readonly types?: readonly string[]
  /** Events that may wait for the reader. Default 1000. */
  readonly limit?: number
  /**
   * What happens to a reader that is slower than that: `drop-oldest` (default) drops and counts; `block`
   * keeps everything, in this stream's own queue, and nobody else waits.
   */
  readonly overflow?: 'drop-oldest' | 'block'
}

interface ResolvedOptions {
  readonly types: ReadonlySet<string> | null
  readonly limit: number
  readonly overflow: 'drop-oldest' | 'block'
}

/** Ends when telemetry stops or the reader breaks out of its loop. */
export class EventStream implements AsyncIterableIterator<BaseEvent> {
  readonly #options: ResolvedOptions
  readonly #unsubscribe: () => void
  #waiting: BaseEvent[] = []
  #hasEnded = false
  #dropped = 0
  #reader: ((result: IteratorResult<BaseEvent>) => void) | undefined
  #room: PromiseWithResolvers<void> | undefined

  constructor(
    options: EventStreamOptions,
    subscribe: (listen: (event: BaseEvent) => unknown) => () => void,
  ) {
    this.#options = resolveEventStreamOptions(options)
    this.#unsubscribe = subscribe((event) => this.#take(event))
  }

  /** How many events were dropped because the reader was too slow. */
  get dropped(): number {
    return this.#dropped
  }

  next(): Promise<IteratorResult<BaseEvent>> {
    const event = this.#waiting.shift()
    if (event !== undefined) {
      this.#room?.resolve()
      this.#room = undefined
      return Promise.resolve({ done: false, value: event })
    }
    if (this.#hasEnded) return Promise.resolve({ done: true, value: undefined })
    return new Promise((resolve) => {
      this.#reader = resolve
    })
  }

  return(): Promise<IteratorResult<BaseEvent>> {
    this.#waiting = []
    this.end()
    return Promise.resolve({ done: true, value: undefined })
  }

  /** No more events will come; what waits can still be read. */
  end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#unsubscribe()
    this.#room?.resolve()
    this.#reader?.({ done: true, value: undefined })
    this.#reader = undefined
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #take(event: BaseEvent): Promise<void> | undefined {
    const { types, limit, overflow } = this.#options
    if (types !== null && !types.has(event.event_type)) return undefined
    if (this.#reader !== undefined) {
      const reader = this.#reader
      this.#reader = undefined
      reader({ done: false, value: event })
      return undefined
    }
    this.#waiting.push(event)
    if (this.#waiting.length <= limit) return undefined
    if (overflow === 'block') {
      this.#room ??= Promise.withResolvers()
      return this.#room.promise
    }
    this.#waiting.shift()
    this.#dropped++
    return undefined
  }
}

function resolveEventStreamOptions(options: EventStreamOptions): ResolvedOptions {
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
