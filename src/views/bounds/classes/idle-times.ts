/**
 * Reasons for idle slots: slot-seconds by reason, and how long at least one slot was idle. In each
 * time span, add tasks that fit before missing resources.
 */

import type { IdleReason, SlotResource, SlotSeconds } from '../slots.ts'

export class IdleTimes {
  readonly seconds = createReasons()
  readonly #sums: SlotSeconds
  /** For each reason, the number of the last time span in which it was added. */
  readonly #spans = createReasons()
  #span = 0
  #length = 0

  constructor(sums: SlotSeconds) {
    this.#sums = sums
  }

  /** Begins the next time span; following calls of `add` refer to it. */
  begin(seconds: number): void {
    this.#span++
    this.#length = seconds
  }

  add(reason: IdleReason, slots: number): void {
    if (slots <= 0) return
    const slotSeconds = slots * this.#length
    if (isLack(reason)) {
      this.#sums.noSlotFitted[reason] += slotSeconds
      // While tasks that fit are held back, more of the missing resource would not help.
      const { heldBack, nameLimit, startingWorkers } = this.#spans
      if (Math.max(heldBack, nameLimit, startingWorkers) === this.#span) return
    } else this.#sums[reason] += slotSeconds
    // Count the span once, even if several requests add the same reason.
    if (this.#spans[reason] === this.#span) return
    this.#spans[reason] = this.#span
    this.seconds[reason] += this.#length
  }
}

const lacks: ReadonlySet<string> = new Set<SlotResource>([
  'cores',
  'gpus',
  'memory',
  'workers',
  'processes',
  'labels',
])

const isLack = (reason: IdleReason): reason is SlotResource => lacks.has(reason)

const createReasons = (): Record<IdleReason, number> => ({
  cores: 0,
  gpus: 0,
  memory: 0,
  workers: 0,
  processes: 0,
  labels: 0,
  noTaskReady: 0,
  nameLimit: 0,
  startingWorkers: 0,
  taskOverhead: 0,
  heldBack: 0,
  nodeAway: 0,
})
