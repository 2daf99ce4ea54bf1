/** A set in insertion order for items that are added and removed in large numbers. */

/** An item of an `IndexedSet`. It can be in one set at a time. */
export interface Indexed {
  /** Written only by the set; -1 while the item is in no set. */
  setIndex: number
}

const minLengthToCompact = 64

/**
 * Unlike a `Set` or `Map`, keeps no reference to a removed item. V8 links every outgrown hash table
 * to its successor. If such a chain reaches the old generation, the former content of its tables
 * stays in memory until the next full collection.
 */
export class IndexedSet<T extends Indexed> {
  #items: (T | undefined)[] = []
  /** The `setIndex` of the first entry. Earlier entries were dropped. */
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

  delete(item: T): boolean {
    if (!this.has(item)) return false
    this.#items[item.setIndex - this.#base] = undefined
    item.setIndex = -1
    this.#size--
    if (this.#items.length > minLengthToCompact && this.#items.length > this.#size * 2)
      this.#compact()
    return true
  }

  /** Returns a copy, so that a loop may add and delete items. */
  toArray(): T[] {
    return this.#items.filter((item) => item !== undefined)
  }

  /**
   * If a quarter of all entries are leading empty ones, drops only these; the items keep their
   * indexes. Otherwise drops all empty entries and renumbers the items.
   */
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
