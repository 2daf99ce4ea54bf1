/** A set in insertion order for items that are added and removed in large numbers. */

/** An item of an `IndexedSet`; it can be in one set at a time. */
export interface Indexed {
  /** Written only by the set; -1 while the item is in no set. */
  setIndex: number
}

const minLengthToCompact = 64

/**
 * Keeps no reference to a removed item. A `Set` or `Map` with many additions and removals does: V8
 * links every outgrown hash table to its successor. Once one of them is in the old generation, the
 * whole chain with its former content stays until the next full collection.
 */
export class IndexedSet<T extends Indexed> {
  #items: (T | undefined)[] = []
  /** The `setIndex` of the first entry; entries before it have been dropped. */
  #base = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  has(item: T): boolean {
    return this.#items[item.setIndex - this.#base] === item
  }

  add(item: T): void {
    item.setIndex = this.#base + this.#items.push(item) - 1
    this.#size++
  }

  /** Returns `false` if the set did not contain the item. */
  delete(item: T): boolean {
    if (!this.has(item)) return false
    this.#items[item.setIndex - this.#base] = undefined
    item.setIndex = -1
    this.#size--
    if (this.#items.length > minLengthToCompact && this.#items.length > this.#size * 2)
      this.#compact()
    return true
  }

  /** Returns a copy, so that a loop over it may add and delete items. */
  toArray(): T[] {
    return this.#items.filter((item) => item !== undefined)
  }

  /** When most items leave in order of arrival, the remaining ones keep their indexes. */
  #compact(): void {
    let first = 0
    while (first < this.#items.length && this.#items[first] === undefined) first++
    if (first * 4 >= this.#items.length) {
      this.#items = this.#items.slice(first)
      this.#base = this.#items.length === 0 ? 0 : this.#base + first
    } else this.#renumber()
  }

  #renumber(): void {
    let end = 0
    for (const item of this.#items) {
      if (item === undefined) continue
      item.setIndex = end
      this.#items[end++] = item
    }
    this.#items.length = end
    this.#base = 0
  }
}
