/** Signs of life and progress reports that a model's process sends while the model loads. */

import type { Clock } from '../../../foundation/clock.ts'
import type { FromLlama, LoadProgress } from './protocol.ts'

const signMs = 2000
/**
 * How long signs of life are sent without progress. After that, the parent considers the process
 * hung: it may wait forever for a file system that does not respond.
 */
const stallMs = 600_000

/** Needed because loading a large model takes minutes, and the library rarely reports progress. */
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
