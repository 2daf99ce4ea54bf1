/** The signs of life and the progress that a model's process sends while the model loads. */

import type { Clock } from '../../../foundation/clock.ts'
import type { FromLlama, LoadProgress } from './protocol.ts'

const signMs = 2000
/**
 * The maximum time without progress for which signs are sent. Then the parent takes the process for
 * hung: it may wait for ever for a file system that does not respond.
 */
const stallMs = 600_000

/** Loading a large model takes minutes, and the library reports progress only rarely. */
export class LoadHeartbeat {
  readonly #clock: Clock
  readonly #send: (message: FromLlama) => void
  #progressMs: number
  #cancel: () => void
  #last = ''

  /** Sends signs of life until `stop` is called. */
  constructor(clock: Clock, send: (message: FromLlama) => void) {
    this.#clock = clock
    this.#send = send
    this.#progressMs = clock.monotonicMs()
    this.#cancel = this.#plan()
  }

  /** The library reports every change; ten messages per stage are enough. */
  report(progress: LoadProgress): void {
    this.#progressMs = this.#clock.monotonicMs()
    const now = `${progress.stage} ${Math.floor(progress.done * 10)}`
    if (now !== this.#last) this.#send({ kind: 'progress', progress })
    this.#last = now
  }

  stop(): void {
    this.#cancel()
  }

  #plan(): () => void {
    return this.#clock.after(signMs, () => {
      const isStalled = this.#clock.monotonicMs() - this.#progressMs > stallMs
      if (!isStalled) this.#send({ kind: 'alive' })
      this.#cancel = this.#plan()
    })
  }
}
