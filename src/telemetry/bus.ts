/**
 * The only event queue and dispatch loop. Bounded without loss: when the queue is full, the emitter
 * drains it. An exception is the turn in which the bus starts: subscribers that are added in that
 * turn get all its events, so these are kept until the turn ends. Before the start, a limited
 * number of events waits.
 */

import type { BaseEvent } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'
import type { Envelope } from './spans/envelope.ts'

/** Receives envelopes in the order of their emission. Must not throw. */
export interface Consumer {
  accept(envelope: Envelope): void
  /** Called after each batch, to write or forward what was collected. */
  endOfBatch(): void
}

export interface BusParts {
  readonly clock: Clock
  readonly log: Log
  /** The checkpoint, if there is one. It gets each batch before the subscribers. */
  readonly record: Consumer | null
  readonly subscribers: Consumer
  /** Runs the dispatch in the async context of the manager's start instead of the emitter's. */
  readonly inContext: (dispatch: () => void) => void
}

const capacity = 4096
/**
 * If the oldest envelope has waited longer, the event loop is blocked, and `publish` dispatches.
 */
const maxWaitSeconds = 0.025
/**
 * This many successive batches of only events that subscribers emitted indicate an infinite loop.
 */
const suspiciousGenerations = 1000

export class EventBus {
  readonly #parts: BusParts
  #queue: Envelope[] = []
  /** The number of queued envelopes that the record already has. */
  #recorded = 0
  /** `true` until the end of the turn in which the first event was published. */
  #isStarting = true
  #oldestTime = 0
  #isScheduled = false
  #isDraining = false
  #isExiting = false
  #idle: PromiseWithResolvers<void> | undefined
  #emittedInDrain = 0
  #generations = 0

  constructor(parts: BusParts) {
    this.#parts = parts
  }

  /**
   * Dispatches in the next turn of the loop, or immediately if the bus is full or the loop is
   * blocked.
   */
  publish(envelope: Envelope): void {
    const queued = this.#queue.push(envelope) - this.#recorded
    if (this.#isDraining) this.#emittedInDrain++
    const time = envelope.event?.emit_time ?? this.#parts.clock.now()
    if (queued === 1) this.#oldestTime = time
    if (this.#isExiting) this.#recordQueued()
    else if (queued >= capacity || time - this.#oldestTime > maxWaitSeconds) this.drain()
    else if (!this.#isScheduled) this.#schedule()
  }

  /** Whether no envelope is queued. */
  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  /**
   * Dispatches everything queued now. Events that subscribers emit meanwhile are queued after it.
   * In the turn of the start, only the record gets the events.
   */
  drain(): void {
    if (this.#isDraining || this.#queue.length === 0) return
    if (this.#isStarting) return this.#recordQueued()
    this.#isDraining = true
    const batch = this.#queue
    const recorded = this.#recorded
    this.#queue = []
    this.#recorded = 0
    this.#guardAgainstLoops(batch)
    this.#emittedInDrain = 0
    try {
      this.#parts.inContext(() => this.#dispatch(batch, recorded))
    } finally {
      this.#isDraining = false
      this.#idle?.resolve()
      this.#idle = undefined
      if (this.#queue.length > 0 && !this.#isScheduled) this.#schedule()
    }
  }

  /**
   * Resolves when the running drain, or the drain after the turn of the start, has ended. `null` if
   * there is none.
   */
  drained(): Promise<void> | null {
    if (!this.#isDraining && !this.#isStarting) return null
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  /** Delivers the events of the start to the subscribers even before the end of its turn. */
  endStart(): void {
    this.#isStarting = false
  }

  /** Drains until the queue is empty. Gives up if subscribers emit endlessly. */
  drainFully(): void {
    this.endStart()
    for (let round = 0; round < suspiciousGenerations && this.#queue.length > 0; round++) {
      this.drain()
    }
  }

  /**
   * Called when the process exits: the record gets everything queued, and each later event
   * immediately. May be called inside a drain, whose batch the record already has.
   */
  recordAtExit(): void {
    this.#isExiting = true
    this.#recordQueued()
  }

  #recordQueued(): void {
    deliver(this.#parts.record, this.#queue, this.#recorded)
    this.#recorded = this.#queue.length
  }

  /** Writes to the record first, so that no subscriber can prevent it. */
  #dispatch(batch: readonly Envelope[], recorded: number): void {
    deliver(this.#parts.record, batch, recorded)
    deliver(this.#parts.subscribers, batch, 0)
  }

  #schedule(): void {
    this.#isScheduled = true
    this.#parts.clock.nextTurn(() => {
      this.#isScheduled = false
      this.endStart()
      this.drain()
    })
  }

  #guardAgainstLoops(batch: readonly Envelope[]): void {
    this.#generations = this.#emittedInDrain >= batch.length ? this.#generations + 1 : 0
    if (this.#generations !== suspiciousGenerations) return
    const origin = batch.find(({ event }) => event !== null)?.event?.event_type ?? 'a span'
    this.#parts.log.warn(
      'SubscriberLoop',
      `a subscriber emits ${origin} for every event it gets, ${suspiciousGenerations} times so far`,
    )
  }
}

function deliver(consumer: Consumer | null, batch: readonly Envelope[], from: number): void {
  if (consumer === null || from === batch.length) return
  for (let at = from; at < batch.length; at++) consumer.accept(batch[at] as Envelope)
  consumer.endOfBatch()
}

const maxEarlyEvents = 1000

/**
 * Events emitted before the bus runs. A limited number waits for the start; the rest are counted.
 */
export class EarlyEvents {
  readonly #log: Log
  #waiting: BaseEvent[] = []
  #isStarted = false
  #hasStopped = false
  #dropped = 0

  constructor(log: Log) {
    this.#log = log
  }

  /** Events that no consumer will receive. */
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
    const why = isEarly
      ? `more than ${maxEarlyEvents} events before start()`
      : 'it was emitted after stop()'
    this.#log.warn('EventsDropped', `${event.event_type} was dropped: ${why}`)
  }

  /** Called when the bus runs. Returns the waiting events in order. */
  release(): readonly BaseEvent[] {
    this.#isStarted = true
    return this.#waiting.splice(0)
  }

  /** Called when no bus will run anymore. Drops the waiting events. */
  end(): void {
    this.#hasStopped = true
    for (const event of this.#waiting.splice(0)) this.keepOrDrop(event)
  }
}
