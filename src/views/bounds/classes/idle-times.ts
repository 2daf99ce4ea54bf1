/**
 * Why slots were idle: how many of them, and for how long at least one. Call for those that are
 * held back first.
 */

import type { IdleReason, SlotSeconds } from '../slots.ts'

export class IdleTimes {
  readonly seconds = createReasons()
  readonly #sums: SlotSeconds
  /** By reason: the last time span in which it was given. */
  readonly #spans = createReasons()
  #span = 0
  #length = 0

  constructor(sums: SlotSeconds) {
    this.#sums = sums
  }

  /** What is added from now on is about the next time span. */
  begin(seconds: number): void {
    this.#span++
    this.#length = seconds
  }

  add(reason: IdleReason, slots: number): void {
    if (slots <= 0) return
    const slotSeconds = slots * this.#length
    if (reason === 'noTaskReady' || reason === 'heldBack' || reason === 'nodeAway') {
      this.#sums[reason] += slotSeconds
    } else {
      this.#sums.noSlotFitted[reason] += slotSeconds
      // While tasks that fit are held back, more of what others lack would not help.
      if (this.#spans.heldBack === this.#span) return
    }
    // Several requests may give the same reason for the same time.
    if (this.#spans[reason] === this.#span) return
    this.#spans[reason] = this.#span
    this.seconds[reason] += this.#length
  }
}

const createReasons = (): Record<IdleReason, number> => ({
  cores: 0,
  gpus: 0,
  memory: 0,
  workers: 0,
  processes: 0,
  labels: 0,
  noTaskReady: 0,
  heldBack: 0,
  nodeAway: 0,
})
