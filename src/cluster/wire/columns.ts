/**
 * Columns for messages with many jobs. V8 serializes a column faster than one object per job.
 * Arrays are filled by `push`, because V8 treats an array made by `map` as sparse.
 */

/** Separates uids, which never contain a newline. */
const separator = '\n'

export const joinUids = (uids: readonly string[]): string => uids.join(separator)

/** Splits a string into `count` uids. The count distinguishes no uid from one empty uid. */
export const splitUids = (uids: string, count: number): readonly string[] =>
  count === 0 ? [] : uids.split(separator)

/** Columns below this length are not packed, because packing costs more than it saves. */
const minPackedLength = 16

/** Packs integers from 0 to 2 ** 32 - 1. */
export const packIndexes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < minPackedLength ? numbers : new Uint32Array(numbers)

export const packTimes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < minPackedLength ? numbers : new Float64Array(numbers)

/** A column in which most rows have the same value. The column is omitted if all rows have it. */
export class RareColumn<T> {
  readonly #commonValue: T
  #values: T[] | null = null
  #count = 0

  constructor(commonValue: T) {
    this.#commonValue = commonValue
  }

  add(value: T): void {
    if (this.#values === null && value !== this.#commonValue) {
      this.#values = []
      for (let row = 0; row < this.#count; row++) this.#values.push(this.#commonValue)
    }
    this.#values?.push(value)
    this.#count++
  }

  get values(): readonly T[] | null {
    return this.#values
  }
}
