/** Turns raw counters into readings: never NaN, never negative, never above 100 %. */

/** A share in percent, from 0 to 100; `null` where the numbers make no share. */
export function percentOf(part: number, whole: number): number | null {
  return whole > 0 ? clampPercent((part / whole) * 100) : null
}

/** Moves a number into 0 to 100; `null` for what is not a number. */
export function clampPercent(value: number): number | null {
  return Number.isNaN(value) ? null : Math.min(100, Math.max(0, value))
}

/**
 * What a counter gained since its last known value. `null` at first, and when it ran backwards:
 * after a wrap or a reset nobody knows how much was gained. An unknown value is bridged by the
 * next known one.
 */
export class GainMeter {
  #previous: number | undefined

  advance(value: number | null): number | null {
    if (value === null || !Number.isFinite(value)) return null
    const previous = this.#previous
    this.#previous = value
    return previous === undefined || value < previous ? null : value - previous
  }
}

/** Two counters in one unit: how much was used, and how much could have been used. */
export interface Usage {
  readonly busy: number
  readonly total: number
}

/**
 * The share of `busy` in `total` since the last known usage; `null` at first and after a reset.
 * Counters that have not moved say nothing new: the last share stays, and before the first one it
 * is the share of all the time that they count.
 */
export class ShareMeter {
  #previous: Usage | undefined
  #share: number | null = null

  advance(usage: Usage | null): number | null {
    if (usage === null || !Number.isFinite(usage.busy) || !Number.isFinite(usage.total)) return null
    const previous = this.#previous
    if (previous !== undefined && usage.total === previous.total) {
      return this.#share ?? percentOf(usage.busy, usage.total)
    }
    this.#previous = usage
    if (previous === undefined || usage.busy < previous.busy) return null
    this.#share = percentOf(usage.busy - previous.busy, usage.total - previous.total)
    return this.#share
  }
}
