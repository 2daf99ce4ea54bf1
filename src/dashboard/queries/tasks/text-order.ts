/** Orders the texts of an index without comparing each of them with others. Pure. */

import { textAt, type TextIndex } from '../../../views/columns.ts'

/** The number of bytes that a key holds exactly. */
const keyBytes = 6

/**
 * Returns a number per text, in the order of the texts. Texts that begin with the same bytes have
 * equal numbers. A beginning that all texts share is ignored.
 */
export function textKeys(index: TextIndex): Float64Array {
  const { bytes, ends, size } = index
  const common = countCommonBytes(index)
  const keys = new Float64Array(size)
  for (let row = 0; row < size; row++) {
    const start = row === 0 ? 0 : (ends[row - 1] ?? 0)
    const from = start + common
    const end = ends[row] ?? 0
    if (end === start) {
      keys[row] = -1
      continue
    }
    let key = 0
    for (let at = from; at < from + keyBytes; at++) {
      key = key * 256 + (at < end ? (bytes[at] ?? 0) : 0)
    }
    keys[row] = key
  }
  return keys
}

function countCommonBytes({ bytes, ends, size }: TextIndex): number {
  let [first, common] = [-1, 0]
  for (let row = 0; row < size; row++) {
    const from = row === 0 ? 0 : (ends[row - 1] ?? 0)
    const length = (ends[row] ?? 0) - from
    // The empty text is the name of tasks without a name.
    if (length === 0) continue
    if (first === -1) {
      ;[first, common] = [from, length]
      continue
    }
    const max = Math.min(common, length)
    let sharedLength = 0
    while (sharedLength < max && bytes[first + sharedLength] === bytes[from + sharedLength])
      sharedLength++
    common = sharedLength
  }
  return common
}

/** Compares two texts of an index by their UTF-16 units. */
export function compareTexts(index: TextIndex, a: number, b: number): number {
  const [one, other] = [textAt(index, a), textAt(index, b)]
  return one === other ? 0 : one < other ? -1 : 1
}
