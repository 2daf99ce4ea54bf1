/**
 * Columns of messages with many jobs, in forms that are written and read at once. Arrays of numbers
 * are filled by `push`: V8 takes one that `map` has made for sparse, and writes every index too.
 */

/** No uid has it: ids are letters, digits and a few signs. */
const separator = '\n'

export const joinUids = (uids: readonly string[]): string => uids.join(separator)

/** `count` of them: an empty text could be none, or one that is empty. */
export const splitUids = (uids: string, count: number): readonly string[] =>
  count === 0 ? [] : uids.split(separator)

/** Typed arrays are written and read as a whole, but for few numbers the way there takes longer. */
const fewNumbers = 16

/** Numbers from 0 to 2 ** 32 - 1. */
export const packIndexes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < fewNumbers ? numbers : new Uint32Array(numbers)

export const packTimes = (numbers: readonly number[]): ArrayLike<number> =>
  numbers.length < fewNumbers ? numbers : new Float64Array(numbers)

/** A column that mostly has one value, and is not written where it has no other. */
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

  /** `null`: all are the usual one. */
  get values(): readonly T[] | null {
    return this.#values
  }
}
