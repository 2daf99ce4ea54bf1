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

/** `null` where all are the usual one. */
export const packNumbers = (numbers: readonly number[], usual: number): readonly number[] | null =>
  numbers.every((number) => number === usual) ? null : numbers
