/** What an agent hears of a session's driver besides its messages: that it is alive. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { type Key, open } from '../wire/envelope.ts'
import type { Beat } from '../wire/messages.ts'

export interface DriverBeatsOptions {
  readonly key: Key
  readonly clock: Clock
  readonly onBeat: (beat: Beat) => void
  readonly onRefused: (reason: string) => void
}

export class DriverBeats {
  readonly #options: DriverBeatsOptions
  #epoch = 0
  #number = 0
  #heardMs: number
  #hasWaiting = false

  constructor(options: DriverBeatsOptions) {
    this.#options = options
    this.#heardMs = options.clock.monotonicMs()
  }

  /** The start of the driver that is listened to. */
  get epoch(): number {
    return this.#epoch
  }

  /** When it was heard last. */
  get heardMs(): number {
    return this.#heardMs
  }

  /** Whether it has work that waits for a place. */
  get hasWaiting(): boolean {
    return this.#hasWaiting
  }

  /** A driver attaches. */
  follow(epoch: number): void {
    if (this.#epoch !== epoch) this.#number = 0
    this.#epoch = epoch
    this.#heardMs = this.#options.clock.monotonicMs()
  }

  take(subject: string, data: Uint8Array): void {
    const { key, clock, onBeat, onRefused } = this.#options
    try {
      const { epoch, number, payload } = open(key, subject, data)
      if (epoch !== this.#epoch) return
      if (number <= this.#number) return onRefused('it was sent before')
      this.#number = number
      this.#heardMs = clock.monotonicMs()
      const beat = payload as Beat
      this.#hasWaiting = beat.hasWaiting
      onBeat(beat)
    } catch (error) {
      onRefused(messageOf(error))
    }
  }
}
