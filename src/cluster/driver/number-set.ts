/** A set of message numbers, such as those that have arrived. */

/** Numbers from 1 that are added almost in order. */
export class NumberSet {
  /** All numbers up to this one are in the set. */
  through = 0
  readonly #later = new Set<number>()

  /** The largest number in the set. */
  get last(): number {
    let last = this.through
    for (const number of this.#later) last = Math.max(last, number)
    return last
  }

  has(number: number): boolean {
    return number <= this.through || this.#later.has(number)
  }

  /** `false` if the number was in the set already. */
  add(number: number): boolean {
    if (this.has(number)) return false
    this.#later.add(number)
    while (this.#later.delete(this.through + 1)) this.through++
    return true
  }
}
