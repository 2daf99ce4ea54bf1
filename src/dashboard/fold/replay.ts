/** A run as it was at an earlier time. */

import { type RecordViews, readViews } from '../../record/record-views.ts'
import type { ViewEvent } from '../../views/panel.ts'
import { EventRing } from './event-ring.ts'

interface PastRun {
  readonly views: RecordViews
  readonly events: readonly ViewEvent[]
}

/** Caches the run at the latest requested time, because all panels request the same one. */
export class Replay {
  readonly #path: string
  #time = NaN
  #run: Promise<PastRun> | null = null
  #controller = new AbortController()

  constructor(path: string) {
    this.#path = path
  }

  /** Aborts a reading for another time, which then rejects. */
  read(time: number): Promise<PastRun> {
    if (this.#run !== null && time === this.#time) return this.#run
    this.#controller.abort(new Error('another time was chosen'))
    this.#controller = new AbortController()
    this.#time = time
    this.#run = this.#readUntil(time, this.#controller.signal)
    return this.#run
  }

  async #readUntil(until: number, signal: AbortSignal): Promise<PastRun> {
    const ring = new EventRing()
    const onEvent = (event: ViewEvent): void => ring.add(event)
    const views = await readViews(this.#path, { until, signal, onEvent })
    return { views, events: ring.latest }
  }
}
