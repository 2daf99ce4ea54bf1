/**
 * The only queue and dispatch loop of events for subscribers. The queue is bounded, but no event is
 * lost: if the queue is full, `publish` drains it synchronously. Events of the turn in which the
 * bus starts are kept until the turn ends, so that subscribers added in that turn receive them.
 */

import type { BaseEvent } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'

/** Receives events in the order of their emission. Must not throw. */
export interface Consumer {
  /** Whether anyone receives the events. */
  readonly isNeeded: boolean
  accept(event: BaseEvent): void
}

export interface BusParts {
  readonly clock: Clock
  readonly log: Log
  readonly subscribers: Consumer
  /**
   * Runs the dispatch in the async context in which the manager was started, not in the emitter's.
   */
  readonly inContext: (dispatch: () => void) => void
}

const maxQueued = 4096
/**
 * If the oldest event has waited longer than this, the event loop is blocked, and `publish`
 * dispatches immediately.
 */
const maxWaitSeconds = 0.025
/**
 * After this many successive batches that contain only events from subscribers, an infinite loop is
 * assumed.
 */
const maxEmitRounds = 1000

export class EventBus {
  readonly #parts: BusParts
  #queue: BaseEvent[] = []
  /** `true` until the end of the turn in which the bus was created. */
  #isStarting = true
  #oldestTime = 0
  #isScheduled = false
  #isDraining = false
  #whenIdle: PromiseWithResolvers<void> | undefined
  #emittedInDrain = 0
  #generations = 0

  constructor(parts: BusParts) {
    this.#parts = parts
    this.#schedule()
  }

  /** Whether someone may receive an event that is published now. */
  get isWatched(): boolean {
    return this.#isStarting || this.#parts.subscribers.isNeeded
  }

  /**
   * Queues an event. It is dispatched in the next turn, or immediately if the queue is full or the
   * event loop is blocked.
   */
  publish(event: BaseEvent): void {
    const queued = this.#queue.push(event)
    if (this.#isDraining) this.#emittedInDrain++
    const time = event.emit_time
    if (queued === 1) this.#oldestTime = time
    if (queued >= maxQueued || time - this.#oldestTime > maxWaitSeconds) this.drain()
    else if (!this.#isScheduled) this.#schedule()
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  /**
   * Dispatches everything that is queued now. Events that subscribers emit during the dispatch are
   * dispatched later. Does nothing in the turn in which the bus starts.
   */
  drain(): void {
    if (this.#isDraining || this.#isStarting || this.#queue.length === 0) return
    this.#isDraining = true
    const batch = this.#queue
    this.#queue = []
    this.#detectLoop(batch)
    this.#emittedInDrain = 0
    try {
      this.#parts.inContext(() => this.#dispatch(batch))
    } finally {
      this.#isDraining = false
      this.#whenIdle?.resolve()
      this.#whenIdle = undefined
      if (this.#queue.length > 0 && !this.#isScheduled) this.#schedule()
    }
  }

  /** Resolves when the running or pending drain has ended; `null` if there is none. */
  whenDrained(): Promise<void> | null {
    if (!this.#isDraining && !(this.#isStarting && this.#queue.length > 0)) return null
    this.#whenIdle ??= Promise.withResolvers()
    return this.#whenIdle.promise
  }

  /** Lets `drain` deliver events to the subscribers even if the turn of the start has not ended. */
  endStart(): void {
    this.#isStarting = false
  }

  /** Drains until the queue is empty. Gives up if subscribers emit endlessly. */
  drainFully(): void {
    this.endStart()
    for (let round = 0; round < maxEmitRounds && this.#queue.length > 0; round++) {
      this.drain()
    }
  }

  #dispatch(batch: readonly BaseEvent[]): void {
    for (const event of batch) this.#parts.subscribers.accept(event)
  }

  #schedule(): void {
    this.#isScheduled = true
    this.#parts.clock.nextTurn(() => {
      this.#isScheduled = false
      this.endStart()
      this.drain()
    })
  }

  #detectLoop(batch: readonly BaseEvent[]): void {
    this.#generations = this.#emittedInDrain >= batch.length ? this.#generations + 1 : 0
    if (this.#generations !== maxEmitRounds) return
    this.#parts.log.warn(
      'SubscriberLoop',
      `a subscriber emits ${batch[0]?.event_type ?? 'an event'} for every event it gets, ` +
        `${maxEmitRounds} times so far`,
    )
  }
}

const maxEarlyEvents = 1000

/** Keeps a limited number of events until the bus starts, and counts the events that it drops. */
export class EarlyEvents {
  readonly #log: Log
  #waiting: BaseEvent[] = []
  #isStarted = false
  #hasStopped = false
  #dropped = 0

  constructor(log: Log) {
    this.#log = log
  }

  get dropped(): number {
    return this.#dropped
  }

  keepOrDrop(event: BaseEvent): void {
    const isEarly = !this.#isStarted && !this.#hasStopped
    if (isEarly && this.#waiting.length < maxEarlyEvents) {
      this.#waiting.push(event)
      return
    }
    this.#dropped++
    if (this.#dropped > 1) return
    const reason = isEarly
      ? `more than ${maxEarlyEvents} events before start()`
      : 'it was emitted after stop()'
    this.#log.warn('EventsDropped', `${event.event_type} was dropped: ${reason}`)
  }

  release(): readonly BaseEvent[] {
    this.#isStarted = true
    return this.#waiting.splice(0)
  }

  end(): void {
    this.#hasStopped = true
    for (const event of this.#waiting.splice(0)) this.keepOrDrop(event)
  }
}
