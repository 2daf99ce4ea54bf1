/** First in, first out, however many: an array's own `shift` moves all that stay. */

const fewPlaces = 1024

export class Fifo<T> {
  #places: (T | undefined)[] = []
  /** Places before it are empty. */
  #from = 0

  get length(): number {
    return this.#places.length - this.#from
  }

  push(item: T): void {
    this.#places.push(item)
  }

  shift(): T | undefined {
    if (this.#from === this.#places.length) return undefined
    const item = this.#places[this.#from]
    // It must not keep what it gave away.
    this.#places[this.#from++] = undefined
    if (this.#from === this.#places.length) this.clear()
    else if (this.#from > fewPlaces && this.#from * 2 > this.#places.length) {
      this.#places = this.#places.slice(this.#from)
      this.#from = 0
    }
    return item
  }

  /** The first ones, at most so many. */
  take(most: number): T[] {
    const taken: T[] = []
    while (taken.length < most && this.length > 0) taken.push(this.shift() as T)
    return taken
  }

  clear(): void {
    this.#places = []
    this.#from = 0
  }
}
