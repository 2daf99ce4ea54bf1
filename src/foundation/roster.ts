/** Things that come and go fast, in the order in which they came. */

/** What a roster can hold; one roster at a time. */
export interface Rostered {
  /** Written by the roster alone; -1 outside of any. */
  rosterIndex: number
}

const fewPlaces = 64

/**
 * A set that leaves nothing behind. A `Set` or `Map` through which much passes does: V8 links every
 * hash table that was outgrown or full of deletions to its successor. Once one of them is old, the
 * whole chain stays until the next full collection, with everything that was in it at a change.
 */
export class Roster<T extends Rostered> {
  readonly #places: (T | undefined)[] = []
  #size = 0

  get size(): number {
    return this.#size
  }

  has(item: T): boolean {
    return this.#places[item.rosterIndex] === item
  }

  add(item: T): void {
    item.rosterIndex = this.#places.push(item) - 1
    this.#size++
  }

  /** `false` when it was not here. */
  delete(item: T): boolean {
    if (!this.has(item)) return false
    this.#places[item.rosterIndex] = undefined
    item.rosterIndex = -1
    this.#size--
    if (this.#places.length > fewPlaces && this.#places.length > this.#size * 2) this.#closeRanks()
    return true
  }

  /** A copy: whoever goes through it may add and delete. */
  toArray(): T[] {
    return this.#places.filter((item) => item !== undefined)
  }

  #closeRanks(): void {
    let end = 0
    for (const item of this.#places) {
      if (item === undefined) continue
      item.rosterIndex = end
      this.#places[end++] = item
    }
    this.#places.length = end
  }
}
