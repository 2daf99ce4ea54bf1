/** Converts counters to readings. A percentage is never NaN, negative or above 100. */

/** Returns `part` as a percentage of `whole`, from 0 to 100; `null` if `whole` is not positive. */
export function percentOf(part: number, whole: number): number | null {
  return whole > 0 ? clampPercent((part / whole) * 100) : null
}

/** Limits a number to the range from 0 to 100. Returns `null` for NaN. */
export function clampPercent(value: number): number | null {
  return Number.isNaN(value) ? null : Math.min(100, Math.max(0, value))
}

/** The increase of a counter; `null` for the first or an unknown value, and after a decrease. */
export class DeltaCounter {
  #previous: number | undefined

  advance(value: number | null): number | null {
    if (value === null || !Number.isFinite(value)) return null
    const previous = this.#previous
    this.#previous = value
    return previous === undefined || value < previous ? null : value - previous
  }
}

/** Two counters in the same unit: the amount used and the total amount. */
export interface Usage {
  readonly busy: number
  readonly total: number
}

/**
 * The percentage of `busy` in `total` since the last usage. `null` for the first usage, for an
 * unknown usage, and after a reset. If `total` has not changed, the last percentage is returned.
 */
export class UtilizationMeter {
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
