/** Messages by their numbers: which of them have come. */

/** Numbers from 1 that come almost in order. */
export class NumberSet {
  /** Everything up to this number is in the set. */
  through = 0
  readonly #later = new Set<number>()

  /** The largest one. */
  get last(): number {
    let last = this.through
    for (const number of this.#later) last = Math.max(last, number)
    return last
  }

  has(number: number): boolean {
    return number <= this.through || this.#later.has(number)
  }

  /** `false` if it was there. */
  add(number: number): boolean {
    if (this.has(number)) return false
    this.#later.add(number)
    while (this.#later.delete(this.through + 1)) this.through++
    return true
  }
}
