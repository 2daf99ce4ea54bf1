/**
 * The only event queue and dispatch loop. Bounded without loss: when the queue is full, the emitter
 * drains it. Before the bus runs, a limited number of events waits.
 */

import type { BaseEvent } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'
import type { Envelope } from './spans/envelope.ts'

/** Takes envelopes in the order of their emission. Must not throw. */
export interface Consumer {
  accept(envelope: Envelope): void
  /** Called after each batch: write or forward what was collected. */
  endOfBatch(): void
}

export interface BusParts {
  readonly clock: Clock
  readonly log: Log
  /** Each batch goes to one consumer after the other; the record is the first. */
  readonly consumers: readonly Consumer[]
  /** Runs the dispatch in the context of the manager's start, not of the emitter. */
  readonly inContext: (dispatch: () => void) => void
}

const capacity = 4096
/**
 * If the oldest envelope has waited this long, the event loop is blocked, and `publish` dispatches.
 */
const longestWaitSeconds = 0.025
/** This many batches in a row that only contain events emitted by subscribers indicate a loop. */
const suspiciousGenerations = 1000

export class EventBus {
  readonly #parts: BusParts
  #queue: Envelope[] = []
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
   * Dispatches in the next turn of the loop; at once when the bus is full or the loop is blocked.
   */
  publish(envelope: Envelope): void {
    const queued = this.#queue.push(envelope)
    if (this.#isDraining) this.#emittedInDrain++
    const time = envelope.event?.emit_time ?? this.#parts.clock.now()
    if (queued === 1) this.#oldestTime = time
    if (this.#isExiting) this.#recordRest()
    else if (queued >= capacity || time - this.#oldestTime > longestWaitSeconds) this.drain()
    else if (!this.#isScheduled) this.#schedule()
  }

  /** Dispatches what is queued now; events that subscribers emit meanwhile are queued after it. */
  drain(): void {
    if (this.#isDraining || this.#queue.length === 0) return
    this.#isDraining = true
    const batch = this.#queue
    this.#queue = []
    this.#guardAgainstLoops(batch)
    this.#emittedInDrain = 0
    try {
      this.#parts.inContext(() => this.#dispatch(batch))
    } finally {
      this.#isDraining = false
      this.#idle?.resolve()
      this.#idle = undefined
      if (this.#queue.length > 0 && !this.#isScheduled) this.#schedule()
    }
  }

  /** Resolves when the running drain has ended; `null` when none is running. */
  drained(): Promise<void> | null {
    if (!this.#isDraining) return null
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  /** Drains until the queue is empty; gives up when subscribers emit without end. */
  drainFully(): void {
    for (let round = 0; round < suspiciousGenerations && this.#queue.length > 0; round++) {
      this.drain()
    }
  }

  /**
   * Called when the process exits: the first consumer, the record, gets everything queued, and from
   * now on each event at once. Also inside a drain, whose batch the record already has.
   */
  recordAtExit(): void {
    this.#isExiting = true
    this.#recordRest()
  }

  #recordRest(): void {
    const batch = this.#queue
    this.#queue = []
    const [record] = this.#parts.consumers
    for (const envelope of batch) record?.accept(envelope)
    record?.endOfBatch()
  }

  /** One consumer after the other, so that a subscriber cannot keep a batch from the record. */
  #dispatch(batch: readonly Envelope[]): void {
    for (const consumer of this.#parts.consumers) {
      for (const envelope of batch) consumer.accept(envelope)
      consumer.endOfBatch()
    }
  }

  #schedule(): void {
    this.#isScheduled = true
    this.#parts.clock.nextTurn(() => {
      this.#isScheduled = false
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

const mostEarlyEvents = 1000

/** Events emitted while no bus runs: a limited number waits for the start, others are counted. */
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
    if (isEarly && this.#waiting.length < mostEarlyEvents) {
      this.#waiting.push(event)
      return
    }
    this.#dropped++
    if (this.#dropped > 1) return
    const why = isEarly
      ? `more than ${mostEarlyEvents} events before start()`
      : 'it was emitted after stop()'
    this.#log.warn('EventsDropped', `${event.event_type} was dropped: ${why}`)
  }

  /** Call when the bus runs; returns the events that waited, in order. */
  release(): readonly BaseEvent[] {
    this.#isStarted = true
    return this.#waiting.splice(0)
  }

  /** Call when no bus will run anymore; events that still wait are dropped. */
  end(): void {
    this.#hasStopped = true
    for (const event of this.#waiting.splice(0)) this.keepOrDrop(event)
  }
}
