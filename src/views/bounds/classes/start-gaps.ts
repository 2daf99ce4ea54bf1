/**
 * Measures gaps: times in which a ready task could have started in a free slot. Gaps of usual
 * length are the overhead per task of the run. Keeps a histogram of constant size.
 */

/**
 * The longest gap in the first bar of the histogram, in seconds. In each further bar, the longest
 * gap is twice as long.
 */
const shortest = 1e-6
const bars = 48
/** A gap is usual if it is at most this many bars above the median, which is a factor of 16. */
const usualBars = 4
/** The minimum number of gaps for a meaningful median. */
const minGaps = 4
/** Shorter gaps are always usual, because starting a program takes this long on a busy machine. */
const alwaysUsual = 0.05

const barOf = (seconds: number): number =>
  Math.min(bars - 1, Math.max(0, Math.ceil(Math.log2(seconds / shortest))))

export class StartGaps {
  readonly #starts = new Float64Array(bars)
  readonly #slotSeconds = new Float64Array(bars)
  /** The length of the gap since the last start, or since a slot became free. */
  #length = 0
  #gapSlotSeconds = 0

  /** Call this for each time span, with the number of slots that were free for a ready task. */
  add(seconds: number, slots: number): void {
    if (slots <= 0) return this.end()
    this.#length += seconds
    this.#gapSlotSeconds += slots * seconds
  }

  /** Ends the current gap. Call this when a task starts. */
  end(): void {
    if (this.#gapSlotSeconds === 0) return
    const bar = barOf(this.#length)
    this.#starts[bar] = (this.#starts[bar] ?? 0) + 1
    this.#slotSeconds[bar] = (this.#slotSeconds[bar] ?? 0) + this.#gapSlotSeconds
    this.#length = 0
    this.#gapSlotSeconds = 0
  }

  usualSlotSeconds(): number {
    this.end()
    const last = Math.max(barOf(alwaysUsual), this.#medianBar() + usualBars)
    return this.#slotSeconds.subarray(0, last + 1).reduce((sum, one) => sum + one, 0)
  }

  #medianBar(): number {
    const all = this.#starts.reduce((sum, count) => sum + count, 0)
    let passed = 0
    return all < minGaps ? -1 : this.#starts.findIndex((count) => (passed += count) >= all / 2)
  }
}
