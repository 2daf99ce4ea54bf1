/** How fast a node ends the attempts of a session, measured while it has work. */

const minRateMs = 50
/** After this time without a completion, no attempts are submitted beyond the node's cores. */
const stalledMs = 100
/** After this time without a completion, the measured rate drops to 0. */
const staleMs = 1000
/** The minimum for measured times, because the clock may not advance while a few short jobs run. */
const minElapsedMs = 0.01
const maxAheadFactor = 64
/**
 * The maximum ratio of the estimated to the measured rate of short attempts. On a busy machine, the
 * measured rate is too low. Without the estimate, each message would have fewer jobs, and the
 * additional messages would slow the machine down further.
 */
const maxEstimateFactor = 64
const maxEstimatedRate = 2000
const maxShortMs = 50
const minShortAttempts = 4

export class WorkRate {
  /** Whether the driver has jobs that wait for an agent. */
  hasDriverJobs = false
  #size = 0
  #busySinceMs = 0
  #busyMs = 0
  #ended = 0
  /** The number of attempts among `#ended` that had begun. `#ranMs` is their total run time. */
  #begunEnded = 0
  #ranMs = 0
  /** The number of recent attempts that were short. Each longer attempt halves it. */
  #shortEnded = 0
  #measuredMs: number
  #endedMs = -Infinity
  #rate: number | null = null
  #estimatedRate = 0
  /** Whether no attempt was held at some time since the last measurement. */
  #hasBeenIdle = false
  #aheadFactor = 1

  constructor(nowMs: number) {
    this.#measuredMs = nowMs
  }

  /**
   * The recent completions per second of busy time, or `null` before the first one. For short
   * attempts, a lower rate is raised to the estimate for a machine that does nothing else, which
   * has an upper bound.
   */
  rate(nowMs: number): number | null {
    if (nowMs - this.#measuredMs >= minRateMs) this.#measure(nowMs)
    return this.#rate === null ? null : Math.max(this.#rate, this.#estimatedRate)
  }

  isStalled(nowMs: number): boolean {
    return nowMs - this.#endedMs > stalledMs
  }

  /** The number of attempts that have neither ended nor been returned. */
  get size(): number {
    return this.#size
  }

  /** How long the held attempts keep the node busy at the current rate; 0 if none is held. */
  get workMs(): number {
    if (this.#size === 0) return 0
    return this.#rate === null || this.#rate === 0 ? minElapsedMs : (this.#size * 1000) / this.#rate
  }

  /**
   * Multiplies the number of jobs that are offered in advance. Grows while the agent runs out of
   * jobs although its driver has some.
   */
  get aheadFactor(): number {
    return this.#aheadFactor
  }

  countAdded(nowMs: number): void {
    if (this.#size++ === 0) this.#busySinceMs = nowMs
  }

  /** `ranMs` is `null` for an attempt that had not begun. */
  countEnded(ranMs: number | null, nowMs: number): void {
    this.#endedMs = nowMs
    this.#ended++
    if (ranMs !== null) {
      this.#begunEnded++
      this.#ranMs += ranMs
      this.#shortEnded =
        ranMs < maxShortMs
          ? Math.min(2 * minShortAttempts, this.#shortEnded + 1)
          : this.#shortEnded >> 1
    }
    this.countRemoved(nowMs)
  }

  countRemoved(nowMs: number): void {
    if (--this.#size > 0) return
    this.#hasBeenIdle = true
    this.#busyMs += nowMs - this.#busySinceMs
  }

  #measure(nowMs: number): void {
    const busyMs = this.#busyMs + (this.#size === 0 ? 0 : nowMs - this.#busySinceMs)
    if (busyMs === 0 || (this.#rate === null && this.#ended === 0)) return
    // One long attempt does not immediately invalidate the rate of earlier ones.
    if (this.#ended === 0 && nowMs - this.#measuredMs < staleMs) return
    this.#rate = (this.#ended * 1000) / Math.max(busyMs, minElapsedMs)
    const possibleRate = (this.#begunEnded * 1000) / Math.max(this.#ranMs, minElapsedMs)
    const maxFactor = this.#shortEnded < minShortAttempts ? 1 : maxEstimateFactor
    this.#estimatedRate = Math.min(possibleRate, this.#rate * maxFactor, maxEstimatedRate)
    const hasLackedJobs = this.#hasBeenIdle && this.hasDriverJobs
    const factor = hasLackedJobs ? this.#aheadFactor * 2 : this.#aheadFactor / 2
    this.#aheadFactor = Math.max(1, Math.min(maxAheadFactor, factor))
    this.#hasBeenIdle = false
    this.#ended = 0
    this.#begunEnded = 0
    this.#ranMs = 0
    this.#busyMs = 0
    this.#busySinceMs = nowMs
    this.#measuredMs = nowMs
  }
}
