/** Merges several streams of changes in order of time. */

/** Returns the stream with the earliest change; the first in the array if several are equal. */
export function earliestOf(streams: readonly TimeStream[]): TimeStream | null {
  let earliest: TimeStream | null = null
  let time = Infinity
  for (const stream of streams) {
    if (stream.time >= time) continue
    earliest = stream
    time = stream.time
  }
  return earliest
}

/** Changes of one kind in order of time. */
export class TimeStream {
  /** The time of the next change; Infinity after the last one. */
  time = Infinity
  readonly #times: Float64Array
  readonly #order: Uint32Array
  readonly #apply: (at: number) => void
  #next = 0

  constructor(times: Float64Array, apply: (at: number) => void) {
    this.#times = times
    this.#order = orderOf(times)
    this.#apply = apply
    this.#look()
  }

  take(): void {
    this.#apply(this.#order[this.#next] ?? 0)
    this.#next++
    this.#look()
  }

  #look(): void {
    this.time = this.#times[this.#order[this.#next] ?? -1] ?? Infinity
  }
}

/** The indexes in ascending order of their values; the values are mostly sorted already. */
function orderOf(values: Float64Array): Uint32Array {
  const order = new Uint32Array(values.length)
  let isSorted = true
  for (let at = 0; at < values.length; at++) {
    order[at] = at
    if (at > 0 && (values[at] ?? 0) < (values[at - 1] ?? 0)) isSorted = false
  }
  return isSorted ? order : order.toSorted((a, b) => (values[a] ?? 0) - (values[b] ?? 0))
}
