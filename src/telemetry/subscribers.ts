/**
 * The callbacks that receive every event. A failing callback is reported, a slow callback does not
 * delay others, and none is removed.
 */

import { isThenable } from '../foundation/promises.ts'
import { type BaseEvent, stampEvent } from '../events/event.ts'
import { SubscriberError } from '../events/library-events.ts'
import type { TelemetryEvent } from '../events/vocabulary.ts'
import type { EventSink } from '../events/sink.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { Fifo } from '../runtime/fifo.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import { expectFunction } from '../foundation/options.ts'
import type { Consumer } from './bus.ts'

export type Subscriber = (event: TelemetryEvent) => unknown

const reportIntervalMs = 60_000
/**
 * Limits for delivering an asynchronous callback's waiting events in one turn of the event loop.
 */
const maxPerTurn = 1000
const maxTurnMs = 10

export interface SubscribersParts {
  readonly clock: Clock
  readonly sink: EventSink
  readonly sessionId: string
}

export class Subscribers implements Consumer {
  readonly #parts: SubscribersParts
  #subscriptions: readonly Subscription[] = []
  #count = 0

  constructor(parts: SubscribersParts) {
    this.#parts = parts
  }

  /** Adds a callback. The returned function removes it together with its waiting events. */
  add(callback: Subscriber): () => void {
    expectFunction('callback', callback)
    this.#count++
    const name = callback.name === '' ? `#${this.#count}` : callback.name
    const subscription = new Subscription(callback, name, this.#parts)
    this.#subscriptions = [...this.#subscriptions, subscription]
    return () => {
      subscription.cancel()
      this.#subscriptions = this.#subscriptions.filter((one) => one !== subscription)
    }
  }

  get isNeeded(): boolean {
    return this.#subscriptions.length > 0
  }

  accept(event: BaseEvent): void {
    for (const subscription of this.#subscriptions) subscription.deliver(event as TelemetryEvent)
  }

  /**
   * Waits until all callbacks are idle, or until the deadline. Returns those that are still busy.
   */
  async settle(deadlineMs: number): Promise<{ name: string; pending: number }[]> {
    const busy = this.#subscriptions.filter((one) => one.pending > 0)
    if (busy.length === 0) return []
    const { promise: deadline, resolve } = Promise.withResolvers<void>()
    const cancel = this.#parts.clock.after(deadlineMs, resolve)
    await Promise.race([deadline, Promise.all(busy.map((one) => one.idle()))])
    cancel()
    return busy.filter((one) => one.pending > 0).map(({ name, pending }) => ({ name, pending }))
  }
}

class Subscription {
  readonly name: string
  readonly #callback: Subscriber
  readonly #parts: SubscribersParts
  readonly #backlog = new Fifo<TelemetryEvent>()
  readonly #budget: TurnBudget
  #isBusy = false
  #isCanceled = false
  #whenIdle: PromiseWithResolvers<void> | undefined
  #failures = 0
  #reportedMs = -Infinity

  constructor(callback: Subscriber, name: string, parts: SubscribersParts) {
    this.#callback = callback
    this.name = name
    this.#parts = parts
    this.#budget = new TurnBudget(parts.clock, maxPerTurn, maxTurnMs)
  }

  get pending(): number {
    return this.#backlog.length + (this.#isBusy ? 1 : 0)
  }

  deliver(event: TelemetryEvent): void {
    if (this.#isCanceled) return
    if (this.pending > 0) this.#backlog.push(event)
    else this.#call(event)
  }

  idle(): Promise<void> {
    if (this.pending === 0) return Promise.resolve()
    this.#whenIdle ??= Promise.withResolvers()
    return this.#whenIdle.promise
  }

  cancel(): void {
    this.#isCanceled = true
    this.#backlog.clear()
    this.#whenIdle?.resolve()
  }

  #call(event: TelemetryEvent): void {
    try {
      const answer = this.#callback(event)
      if (isThenable(answer)) this.#await(answer)
    } catch (error) {
      this.#reportFailure(error)
    }
  }

  #await(answer: PromiseLike<unknown>): void {
    this.#isBusy = true
    const next = (): void => {
      this.#isBusy = false
      this.#deliverBacklog()
    }
    // Wrapped in a promise, because a foreign thenable may call back synchronously or twice.
    Promise.resolve(answer).then(next, (error: unknown) => {
      this.#reportFailure(error)
      next()
    })
  }

  /**
   * Delivers waiting events. Limited per turn, because promises that resolve immediately would
   * block the event loop.
   */
  #deliverBacklog(): void {
    while (!this.#isBusy && this.#backlog.length > 0) {
      if (this.#budget.left <= 0) {
        void this.#budget.nextTurn().then(() => this.#deliverBacklog())
        return
      }
      this.#budget.spend()
      const event = this.#backlog.shift()
      if (event !== undefined) this.#call(event)
    }
    if (this.pending > 0) return
    this.#whenIdle?.resolve()
    this.#whenIdle = undefined
  }

  #reportFailure(error: unknown): void {
    this.#failures++
    const { clock, sink, sessionId } = this.#parts
    const now = clock.monotonicMs()
    if (this.#isCanceled || now - this.#reportedMs < reportIntervalMs) return
    this.#reportedMs = now
    const facts = {
      subscriber: maskSecrets(this.name),
      count: this.#failures,
      message: maskSecrets(messageOf(error)),
    }
    this.#failures = 0
    sink.emit(
      stampEvent(SubscriberError, clock, {
        ...facts,
        session_id: sessionId,
        backend: 'tutti',
      }),
    )
  }
}
