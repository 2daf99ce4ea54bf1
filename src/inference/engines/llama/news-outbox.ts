/** Gathers news of several steps into one message: small models step faster than messages go. */

import type { Clock } from '../../../foundation/clock.ts'
import type { News } from './protocol.ts'

const pauseMs = 4
/** Messages under way; with more, the parent is too busy to read, and the model waits. */
const mostUnderWay = 16

export interface NewsOutboxOptions {
  readonly clock: Clock
  /** Calls back when the message has left. */
  send(news: readonly News[], hasLeft: () => void): void
}

export class NewsOutbox {
  readonly #options: NewsOutboxOptions
  #news: News[] = []
  #sentMs = Number.NEGATIVE_INFINITY
  #underWay = 0
  #freed: (() => void) | null = null

  constructor(options: NewsOutboxOptions) {
    this.#options = options
  }

  put(news: News): void {
    this.#news.push(news)
  }

  /** Sends what there is, unless it can wait for the next call. */
  flush(isLast: boolean): Promise<void> | undefined {
    if (this.#news.length === 0) return undefined
    const nowMs = this.#options.clock.monotonicMs()
    if (!isLast && nowMs - this.#sentMs < pauseMs) return undefined
    const news = this.#news
    this.#news = []
    this.#sentMs = nowMs
    this.#underWay++
    this.#options.send(news, () => this.#arrive())
    if (this.#underWay < mostUnderWay) return undefined
    return new Promise((resolve) => {
      this.#freed = resolve
    })
  }

  #arrive(): void {
    this.#underWay--
    this.#freed?.()
    this.#freed = null
  }
}
