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

/** `null` where all are the usual one. */
export const packNumbers = (numbers: readonly number[], usual: number): readonly number[] | null =>
  numbers.every((number) => number === usual) ? null : numbers
