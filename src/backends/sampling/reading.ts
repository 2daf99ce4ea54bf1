/** Converts raw counters to readings: never NaN, never negative, never above 100 %. */

/** `part` as a percentage of `whole`, from 0 to 100; `null` if that is undefined. */
export function percentOf(part: number, whole: number): number | null {
  return whole > 0 ? clampPercent((part / whole) * 100) : null
}

/** Limits a number to 0 to 100; `null` for NaN. */
export function clampPercent(value: number): number | null {
  return Number.isNaN(value) ? null : Math.min(100, Math.max(0, value))
}

/**
 * The increase of a counter since its last known value. `null` for the first value, and when the
 * counter went backwards, because the increase is unknown after a wrap or a reset. After unknown
 * values, the next known value includes their increase.
 */
export class DeltaCounter {
  #previous: number | undefined

  advance(value: number | null): number | null {
    if (value === null || !Number.isFinite(value)) return null
    const previous = this.#previous
    this.#previous = value
    return previous === undefined || value < previous ? null : value - previous
  }
}

/** Two counters in the same unit: how much was used, and how much could have been used. */
export interface Usage {
  readonly busy: number
  readonly total: number
}

/**
 * The share of `busy` in `total` since the last known usage; `null` for the first usage and after a
 * reset. If the counters have not changed, it is the last share or, without one, the share since
 * the counters began.
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
