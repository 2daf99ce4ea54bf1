/** A first-in, first-out queue, and a semaphore whose callers wait in such a queue. */

const minLengthToCompact = 1024

/** A queue whose `shift` is O(1), unlike `Array.prototype.shift`. */
export class Fifo<T> {
  #items: (T | undefined)[] = []
  /** The index of the first item. Entries before it are empty. */
  #head = 0

  get length(): number {
    return this.#items.length - this.#head
  }

  push(item: T): void {
    this.#items.push(item)
  }

  shift(): T | undefined {
    if (this.#head === this.#items.length) return undefined
    const item = this.#items[this.#head]
    // Lets the item be garbage-collected.
    this.#items[this.#head++] = undefined
    if (this.#head === this.#items.length) this.clear()
    else if (this.#head > minLengthToCompact && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head)
      this.#head = 0
    }
    return item
  }

  peek(): T | undefined {
    return this.#items[this.#head]
  }

  *[Symbol.iterator](): Generator<T> {
    for (let at = this.#head; at < this.#items.length; at++) yield this.#items[at] as T
  }

  shiftMany(max: number): T[] {
    const shifted: T[] = []
    while (shifted.length < max && this.length > 0) shifted.push(this.shift() as T)
    return shifted
  }

  clear(): void {
    this.#items = []
    this.#head = 0
  }
}

/** Runs at most `limit` functions at a time, in the order of the calls. */
export class Semaphore {
  /** Not limited, because the waiting callers are in memory anyway. */
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
