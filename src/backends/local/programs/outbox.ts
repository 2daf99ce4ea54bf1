/** Gathers what a launcher has to tell, so that quick programs cost one message for many. */

import { systemClock as clock } from '../../../foundation/clock.ts'
import type { FromLauncher, ProgramNews } from './protocol.ts'

export class Outbox {
  readonly #send: (news: FromLauncher) => void
  #news: ProgramNews[] = []
  #isScheduled = false

  constructor(send: (news: FromLauncher) => void) {
    this.#send = send
  }

  /** Waits for the next news that is pressing. */
  hold(news: ProgramNews): void {
    this.#news.push(news)
  }

  /** Leaves in the next turn of the loop, with everything before it. */
  push(news: ProgramNews): void {
    this.#news.push(news)
    this.hurry()
  }

  /** What is held leaves in the next turn. */
  hurry(): void {
    if (this.#isScheduled || this.#news.length === 0) return
    this.#isScheduled = true
    clock.nextTurn(() => {
      this.#isScheduled = false
      const news = this.#news
      this.#news = []
      this.#send(news)
    })
  }
}
