/** A set of message numbers, such as those that have arrived. */

interface Range {
  readonly from: number
  readonly to: number
}

/** A set of positive integers that are added almost in order. */
export class NumberSet {
  /** Ascending and separated by gaps. The first range includes 0, which is no message number. */
  readonly #ranges: Range[] = [{ from: 0, to: 0 }]

  /** All numbers up to this one are in the set. */
  get through(): number {
    return this.#ranges[0]?.to ?? 0
  }

  has(number: number): boolean {
    return (this.#ranges.findLast(({ from }) => from <= number)?.to ?? -1) >= number
  }

  /** `false` if the number was already in the set. */
  add(number: number): boolean {
    if (this.has(number)) return false
    this.#join({ from: number, to: number })
    return true
  }

  /** Adds all numbers of this range except these. The cost does not depend on its length. */
  addRange({ from, to }: Range, except: readonly number[]): void {
    let next = from
    for (const one of except.toSorted((a, b) => a - b)) {
      if (one < next || one > to) continue
      if (one > next) this.#join({ from: next, to: one - 1 })
      next = one + 1
    }
    if (next <= to) this.#join({ from: next, to })
  }

  /** Adds all numbers of the other set except these. */
  addAll(other: NumberSet, except: readonly number[] = []): void {
    for (const range of other.#ranges) this.addRange(range, except)
  }

  /** Adds a range, merging it with all ranges that it overlaps or touches. */
  #join({ from, to }: Range): void {
    const first = this.#ranges.findLastIndex((range) => range.to < from - 1) + 1
    const end = this.#ranges.findLastIndex((range) => range.from <= to + 1) + 1
    const joined = this.#ranges.slice(first, end)
    this.#ranges.splice(first, joined.length, {
      from: Math.min(from, joined[0]?.from ?? from),
      to: Math.max(to, joined.at(-1)?.to ?? to),
    })
  }
}
