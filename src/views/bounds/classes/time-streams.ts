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

/**
 * Returns the indexes in ascending order of their values; equal values stay in their order. Merges
 * sorted parts, because `toSorted` with a comparator takes several times the memory.
 */
export function sortIndexes(values: Float64Array): Uint32Array {
  const { length } = values
  const order = new Uint32Array(length)
  for (let at = 0; at < length; at++) order[at] = at
  let left: Uint32Array | null = null
  for (let size = 1; size < length; size *= 2) {
    for (let middle = size; middle < length; middle += 2 * size) {
      const [last = 0, next = 0] = [order[middle - 1], order[middle]]
      if ((values[last] ?? 0) <= (values[next] ?? 0)) continue
      left ??= new Uint32Array(length)
      for (let at = 0; at < size; at++) left[at] = order[middle - size + at] ?? 0
      mergeParts(values, order, { left, middle, size })
    }
  }
  return order
}

interface SortedParts {
  /** A copy of the part before `middle`. */
  readonly left: Uint32Array
  readonly middle: number
  /** The size of the part before `middle`. The part behind it may be shorter. */
  readonly size: number
}

function mergeParts(
  values: Float64Array,
  order: Uint32Array,
  { left, middle, size }: SortedParts,
): void {
  const end = Math.min(order.length, middle + size)
  let [fromLeft, fromRight] = [0, middle]
  for (let at = middle - size; fromLeft < size; at++) {
    const [one, other] = [left[fromLeft] ?? 0, order[fromRight] ?? 0]
    const isLeft = fromRight >= end || (values[one] ?? 0) <= (values[other] ?? 0)
    order[at] = isLeft ? one : other
    if (isLeft) fromLeft++
    else fromRight++
  }
}
