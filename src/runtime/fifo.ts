/** A first-in, first-out queue with O(1) `shift`, unlike `Array.prototype.shift`. */

const minLengthToCompact = 1024

export class Fifo<T> {
  #items: (T | undefined)[] = []
  /** The index of the first item; all entries before it are empty. */
  #from = 0

  get length(): number {
    return this.#items.length - this.#from
  }

  push(item: T): void {
    this.#items.push(item)
  }

  shift(): T | undefined {
    if (this.#from === this.#items.length) return undefined
    const item = this.#items[this.#from]
    // Release the reference.
    this.#items[this.#from++] = undefined
    if (this.#from === this.#items.length) this.clear()
    else if (this.#from > minLengthToCompact && this.#from * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#from)
      this.#from = 0
    }
    return item
  }

  /** The first item, which stays in the queue. */
  peek(): T | undefined {
    return this.#items[this.#from]
  }

  *[Symbol.iterator](): Generator<T> {
    for (let at = this.#from; at < this.#items.length; at++) yield this.#items[at] as T
  }

  /** Removes and returns up to `most` items from the head. */
  take(most: number): T[] {
    const taken: T[] = []
    while (taken.length < most && this.length > 0) taken.push(this.shift() as T)
    return taken
  }

  clear(): void {
    this.#items = []
    this.#from = 0
  }
}
