/**
 * Columns of messages with many jobs, in forms that are serialized as a whole. Arrays of numbers
 * are filled by `push`: V8 treats an array made by `map` as sparse and also writes every index.
 */

/** Separates uids, which never contain a newline. */
const separator = '\n'

export const joinUids = (uids: readonly string[]): string => uids.join(separator)

/** Splits into `count` uids. The count distinguishes no uid from one empty uid. */
export const splitUids = (uids: string, count: number): readonly string[] =>
  count === 0 ? [] : uids.split(separator)

/** Shorter columns stay plain arrays, because converting few numbers costs more than it saves. */
const fewNumbers = 16

/** Packs integers from 0 to 2 ** 32 - 1. */
export const packIndexes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < fewNumbers ? numbers : new Uint32Array(numbers)

export const packTimes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < fewNumbers ? numbers : new Float64Array(numbers)

/** A column in which most rows have the same value. It is omitted if all rows have that value. */
export class RareColumn<T> {
  readonly #usual: T
  #values: T[] | null = null
  #count = 0

  constructor(usual: T) {
    this.#usual = usual
  }

  add(value: T): void {
    if (this.#values === null && value !== this.#usual) {
      this.#values = []
      for (let row = 0; row < this.#count; row++) this.#values.push(this.#usual)
    }
    this.#values?.push(value)
    this.#count++
  }

  /** `null` if all rows have the usual value. */
  get values(): readonly T[] | null {
    return this.#values
  }
}
