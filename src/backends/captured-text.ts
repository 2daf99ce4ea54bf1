/** The text of a program's output: all of it, or its first and last bytes with a mark between. */

/** How many bytes of the beginning are kept, and how many of the end. */
export const keptBytes = 65_536

/** The text that replaces the bytes that were left out. */
export const leftOutMark = (bytes: number): string => `\n[... ${bytes} bytes left out ...]\n`
const markForm = /^\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n/
/** The maximum length of an incomplete last line that is held back. */
const maxHeldLength = 16_384

/** Splits the growing text of one output into its successive additions. */
export class TextPieces {
  /** How many bytes of the output were returned so far, including those that were left out. */
  #position = 0

  /** Returns the text added since the last call: complete lines, and the rest if `isLast`. */
  next(text: string, isTruncated: boolean, isLast: boolean): string {
    const bytes = Buffer.from(text)
    const piece = isTruncated ? this.#afterGap(bytes) : bytes.subarray(this.#position)
    const whole = piece.lastIndexOf(0x0a) + 1
    const isHeld = !isLast && piece.length - whole < maxHeldLength
    const length = isHeld ? whole : piece.length
    const end = isTruncated ? totalOf(bytes) : Math.max(bytes.length, this.#position)
    this.#position = end - (piece.length - length)
    return piece.toString('utf8', 0, length)
  }

  /** Returns the bytes after the position, with a mark in place of those that were left out. */
  #afterGap(bytes: Buffer): Buffer {
    const { at, omitted, rest } = findGap(bytes)
    const from = this.#position
    if (from >= at + omitted) return rest.subarray(from - at - omitted)
    const mark = Buffer.from(leftOutMark(at + omitted - Math.max(from, at)))
    return Buffer.concat([bytes.subarray(Math.min(from, at), at), mark, rest])
  }
}

const totalOf = (bytes: Buffer): number => {
  const { at, omitted, rest } = findGap(bytes)
  return at + omitted + rest.length
}

interface Gap {
  /** The position of the first byte that was left out. */
  readonly at: number
  readonly omitted: number
  readonly rest: Buffer
}

/** The mark may be up to 3 bytes early: a character cut by the bound is left out as a whole. */
function findGap(bytes: Buffer): Gap {
  const at = bytes.indexOf('\n[... ', keptBytes - 3)
  const [mark = '', omitted = '0'] = markForm.exec(bytes.toString('latin1', at, at + 64)) ?? []
  return at === -1 || mark === ''
    ? { at: bytes.length, omitted: 0, rest: Buffer.alloc(0) }
    : { at, omitted: Number(omitted), rest: bytes.subarray(at + mark.length) }
}
