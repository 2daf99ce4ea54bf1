/** A set of message numbers, for example those of the messages that have arrived. */

export interface NumberRange {
  readonly from: number
  readonly to: number
}

/** A set of positive integers. Efficient if they are added almost in order. */
export class NumberSet {
  /** Ascending ranges with gaps. The first one includes 0, which is no message number. */
  readonly #ranges: NumberRange[] = [{ from: 0, to: 0 }]

  /** All numbers up to this one are in the set. */
  get through(): number {
    return this.#ranges[0]?.to ?? 0
  }

  has(number: number): boolean {
    return (this.#ranges.findLast(({ from }) => from <= number)?.to ?? -1) >= number
  }

  add(number: number): boolean {
    if (this.has(number)) return false
    this.#mergeRange({ from: number, to: number })
    return true
  }

  /** Adds a range except some numbers. The cost does not depend on the length of the range. */
  addRange({ from, to }: NumberRange, except: readonly number[]): void {
    let next = from
    for (const one of except.toSorted((a, b) => a - b)) {
      if (one < next || one > to) continue
      if (one > next) this.#mergeRange({ from: next, to: one - 1 })
      next = one + 1
    }
    if (next <= to) this.#mergeRange({ from: next, to })
  }

  addAll(other: NumberSet, except: readonly number[] = []): void {
    for (const range of other.#ranges) this.addRange(range, except)
  }

  #mergeRange({ from, to }: NumberRange): void {
    const first = this.#ranges.findLastIndex((range) => range.to < from - 1) + 1
    const end = this.#ranges.findLastIndex((range) => range.from <= to + 1) + 1
    const joined = this.#ranges.slice(first, end)
    this.#ranges.splice(first, joined.length, {
      from: Math.min(from, joined[0]?.from ?? from),
      to: Math.max(to, joined.at(-1)?.to ?? to),
    })
  }
}
