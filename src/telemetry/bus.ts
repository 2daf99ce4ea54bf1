/**
 * The one queue and the one dispatch loop. Bounded, and it loses nothing: a full bus is drained in
 * place.
 */

import type { FinishedSpan } from '../checkpoint/format.ts'
import type { BaseEvent } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'
import type { TaskRecord } from './metrics/task-record.ts'

/** What travels on the bus: an event with its span, a span that ended, or both. */
export class Envelope {
  readonly event: BaseEvent | null
  readonly spanId: string
  readonly ended: TaskRecord | FinishedSpan | null

  constructor(event: Envelope['event'], spanId: string, ended: Envelope['ended'] = null) {
    this.event = event
    this.spanId = spanId
    this.ended = ended
  }
}

/** Takes envelopes in the order of their emission. Must not throw. */
export interface Consumer {
  accept(envelope: Envelope): void
  /** A batch is complete: write or forward what was collected. */
  endOfBatch(): void
}

export interface BusParts {
  readonly clock: Clock
  readonly log: Log
  readonly consumers: readonly Consumer[]
  /** Runs the dispatch in the context of the manager's start, not of the emitter. */
  readonly inContext: (dispatch: () => void) => void
}

const capacity = 4096
/**
 * An envelope that waited this long is dispatched by the next emitter: somebody starves the loop.
 */
const longestWaitSeconds = 0.025
/** So many batches in a row that were wholly emitted by subscribers mean a loop. */
const suspiciousGenerations = 1000

export class EventBus {
  readonly #parts: BusParts
  #queue: Envelope[] = []
  #oldestTime = 0
  #isScheduled = false
  #isDraining = false
  #idle: PromiseWithResolvers<void> | undefined
  #emittedInDrain = 0
  #generations = 0

  constructor(parts: BusParts) {
    this.#parts = parts
  }

  /**
   * Dispatches in the next turn of the loop; at once when the bus is full or the loop is starved.
   */
  publish(envelope: Envelope): void {
    const queued = this.#queue.push(envelope)
    if (this.#isDraining) this.#emittedInDrain++
    const time = envelope.event?.emit_time ?? this.#parts.clock.now()
    if (queued === 1) this.#oldestTime = time
    if (queued >= capacity || time - this.#oldestTime > longestWaitSeconds) this.drain()
    else if (!this.#isScheduled) this.#schedule()
  }

  /** Dispatches everything that is queued now; what subscribers emit meanwhile is queued behind. */
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

  /** Resolves when the drain that is under way is over; `null` when none is. */
  drained(): Promise<void> | null {
    if (!this.#isDraining) return null
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  /** Drains until nothing is left; gives up on subscribers that emit without end. */
  drainFully(): void {
    for (let round = 0; round < suspiciousGenerations && this.#queue.length > 0; round++) {
      this.drain()
    }
  }

  #dispatch(batch: readonly Envelope[]): void {
    const { consumers } = this.#parts
    for (const envelope of batch) {
      for (const consumer of consumers) consumer.accept(envelope)
    }
    for (const consumer of consumers) consumer.endOfBatch()
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
