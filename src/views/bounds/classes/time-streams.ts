/** Merges several streams of changes in order of time. */

/**
 * Applies all changes before `end` in order of time. At equal times, changes of the first stream
 * come first. Calls `advance` with the time of each change before applying it, and finally with
 * `end`.
 */
export function applyInOrder(
  streams: readonly TimeStream[],
  end: number,
  advance: (time: number) => void,
): void {
  for (;;) {
    let next: TimeStream | null = null
    let time = end
    for (const stream of streams) {
      if (stream.time >= time) continue
      next = stream
      time = stream.time
    }
    advance(time)
    if (next === null) return
    next.apply()
  }
}

/** Changes of one kind in order of time. */
export class TimeStream {
  /** The time of the next change; `Infinity` after the last change. */
  time = Infinity
  readonly #times: Float64Array
  readonly #order: Uint32Array
  readonly #change: (index: number) => void
  #next = 0

  constructor(times: Float64Array, change: (index: number) => void) {
    this.#times = times
    this.#order = sortIndexes(times)
    this.#change = change
    this.#readTime()
  }

  apply(): void {
    this.#change(this.#order[this.#next] ?? 0)
    this.#next++
    this.#readTime()
  }

  #readTime(): void {
    this.time = this.#times[this.#order[this.#next] ?? -1] ?? Infinity
  }
}

/** Returns the indexes in ascending order of their values, which are usually sorted already. */
function sortIndexes(values: Float64Array): Uint32Array {
  const order = new Uint32Array(values.length)
  let isSorted = true
  for (let at = 0; at < values.length; at++) {
    order[at] = at
    if (at > 0 && (values[at] ?? 0) < (values[at - 1] ?? 0)) isSorted = false
  }
  return isSorted ? order : order.toSorted((a, b) => (values[a] ?? 0) - (values[b] ?? 0))
}
