/** A first-in, first-out queue, and a semaphore whose callers wait in such a queue. */

const minLengthToCompact = 1024

/** `shift` is O(1), unlike `Array.prototype.shift`. */
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

  /** Removes and returns up to `max` items from the head. */
  take(max: number): T[] {
    const taken: T[] = []
    while (taken.length < max && this.length > 0) taken.push(this.shift() as T)
    return taken
  }

  clear(): void {
    this.#items = []
    this.#from = 0
  }
}

/** Runs at most `limit` functions at a time, in the order of the calls. */
export class Semaphore {
  /** Unbounded: callers already hold the memory. */
  readonly #waiting = new Fifo<() => void>()
  #free: number

  constructor(limit: number) {
    this.#free = limit
  }

  /** Settles like `work`, which starts when a slot is free. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((start) => this.#waiting.push(start))
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#free++
      else next()
    }
  }
}
