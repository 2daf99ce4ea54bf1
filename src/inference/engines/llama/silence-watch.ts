/** Detects that a process with work to do sends no signs of life. */

import type { Clock } from '../../../foundation/clock.ts'

export interface SilenceWatchOptions {
  readonly clock: Clock
  /** How long a process may be silent before it counts as hung. */
  readonly hungMs: number
  /** Whether the process has work to do. */
  readonly isBusy: () => boolean
  /** Called once, when the process counts as hung, with the length of its silence. */
  readonly onHung: (silentMs: number) => void
}

/** `problem` reports a longer silence. */
const maxSilenceMs = 10_000

/** The timer runs only while the process is busy, and never after `stop`. */
export class SilenceWatch {
  readonly #options: SilenceWatchOptions
  readonly #reportedMs: number
  readonly #intervalMs: number
  #signMs = 0
  #checkMs = 0
  #cancel: (() => void) | null = null
  #isStopped = false

  constructor(options: SilenceWatchOptions) {
    this.#options = options
    this.#reportedMs = Math.min(maxSilenceMs, options.hungMs / 2)
    this.#intervalMs = Math.min(1000, options.hungMs / 4)
  }

  /** Called when the process has sent a message or received work. */
  sign(): void {
    this.#signMs = this.#options.clock.monotonicMs()
    this.#arm()
  }

  /** A message for people about the silence; `null` if there is no problem. */
  get problem(): string | null {
    const silentMs = this.#silentMs()
    if (this.#cancel === null || silentMs < this.#reportedMs) return null
    return `has given no sign of life for ${Math.floor(silentMs / 1000)} s`
  }

  stop(): void {
    this.#isStopped = true
    this.#cancel?.()
    this.#cancel = null
  }

  #silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#signMs
  }

  #arm(): void {
    const { clock, isBusy } = this.#options
    if (this.#cancel !== null || this.#isStopped || !isBusy()) return
    this.#checkMs = clock.monotonicMs() + this.#intervalMs
    this.#cancel = clock.after(this.#intervalMs, () => this.#check(), { background: true })
  }

  #check(): void {
    const { clock, hungMs, isBusy, onHung } = this.#options
    this.#cancel = null
    // This process itself was suspended or busy, so signs of life may be waiting to be read.
    const isLate = clock.monotonicMs() - this.#checkMs > this.#intervalMs
    if (isLate) this.#signMs = Math.max(this.#signMs, clock.monotonicMs() - hungMs / 2)
    if (isBusy() && this.#silentMs() >= hungMs) {
      this.stop()
      return onHung(this.#silentMs())
    }
    this.#arm()
  }
}
