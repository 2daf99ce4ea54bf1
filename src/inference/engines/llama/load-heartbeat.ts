/** Sends signs of life and progress reports while a model's process loads the model. */

import type { Clock } from '../../../foundation/clock.ts'
import type { MessageFromLlama, LoadProgress } from './protocol.ts'

const heartbeatIntervalMs = 2000
/** Without progress, the process may wait for a dead file system, so it must seem hung. */
const stallTimeoutMs = 600_000

/** Loading a large model takes minutes, and the library rarely reports progress. */
export class LoadHeartbeat {
  readonly #clock: Clock
  readonly #send: (message: MessageFromLlama) => void
  #progressMs: number
  #cancel: () => void
  #lastReport = ''

  constructor(clock: Clock, send: (message: MessageFromLlama) => void) {
    this.#clock = clock
    this.#send = send
    this.#progressMs = clock.monotonicMs()
    this.#cancel = this.#scheduleNext()
  }

  /** Sends at most ten messages per stage, because the library reports every change. */
  report(progress: LoadProgress): void {
    this.#progressMs = this.#clock.monotonicMs()
    const now = `${progress.stage} ${Math.floor(progress.done * 10)}`
    if (now !== this.#lastReport) this.#send({ kind: 'progress', progress })
    this.#lastReport = now
  }

  stop(): void {
    this.#cancel()
  }

  #scheduleNext(): () => void {
    return this.#clock.after(heartbeatIntervalMs, () => {
      const isStalled = this.#clock.monotonicMs() - this.#progressMs > stallTimeoutMs
      if (!isStalled) this.#send({ kind: 'alive' })
      this.#cancel = this.#scheduleNext()
    })
  }
}
