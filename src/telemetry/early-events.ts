/** Events that come when no bus runs: before the start some wait, all others are counted. */

import type { BaseEvent } from '../events/event.ts'
import type { Log } from '../foundation/log.ts'

const mostWaiting = 1000

export class EarlyEvents {
  readonly #log: Log
  #waiting: BaseEvent[] = []
  #isStarted = false
  #hasStopped = false
  #dropped = 0

  constructor(log: Log) {
    this.#log = log
  }

  /** Events that nobody will hear. */
  get dropped(): number {
    return this.#dropped
  }

  keepOrDrop(event: BaseEvent): void {
    const isEarly = !this.#isStarted && !this.#hasStopped
    if (isEarly && this.#waiting.length < mostWaiting) {
      this.#waiting.push(event)
      return
    }
    this.#dropped++
    if (this.#dropped > 1) return
    const when = isEarly ? `${mostWaiting} events before start()` : 'stop()'
    this.#log.warn('EventsDropped', `${event.event_type} was emitted after ${when}`)
  }

  /** The bus runs now: what waited is given back, in order. */
  release(): readonly BaseEvent[] {
    this.#isStarted = true
    return this.#waiting.splice(0)
  }

  /** Nothing will be heard anymore; what still waits is dropped. */
  end(): void {
    this.#hasStopped = true
    for (const event of this.#waiting.splice(0)) this.keepOrDrop(event)
  }
}
