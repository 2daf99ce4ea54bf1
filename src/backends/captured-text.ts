/** The text of a program's output. In long output, a mark replaces the middle. */

/** The number of bytes kept at each end of a long output. */
export const captureBytes = 65_536

export const omissionMark = (bytes: number): string => `\n[... ${bytes} bytes left out ...]\n`
const omissionPattern = /^\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n/
/** The maximum length of an incomplete line that is held back until its line break arrives. */
const maxPartialLineBytes = 16_384

/** Splits a growing output into successive additions. */
export class OutputDeltas {
  /** The number of output bytes returned so far, including omitted ones. */
  #position = 0

  /** Returns the text added since the last call: complete lines and, if `isLast`, the rest. */
  next(text: string, isTruncated: boolean, isLast: boolean): string {
    const bytes = Buffer.from(text)
    const piece = isTruncated ? this.#afterGap(bytes) : bytes.subarray(this.#position)
    const whole = piece.lastIndexOf(0x0a) + 1
    const isHeld = !isLast && piece.length - whole < maxPartialLineBytes
    const length = isHeld ? whole : piece.length
    const end = isTruncated ? totalOf(bytes) : Math.max(bytes.length, this.#position)
    this.#position = end - (piece.length - length)
    return piece.toString('utf8', 0, length)
  }

  #afterGap(bytes: Buffer): Buffer {
    const { at, omittedBytes, tail } = findOmission(bytes)
    const from = this.#position
    if (from >= at + omittedBytes) return tail.subarray(from - at - omittedBytes)
    const mark = Buffer.from(omissionMark(at + omittedBytes - Math.max(from, at)))
    return Buffer.concat([bytes.subarray(Math.min(from, at), at), mark, tail])
  }
}

const totalOf = (bytes: Buffer): number => {
  const { at, omittedBytes, tail } = findOmission(bytes)
  return at + omittedBytes + tail.length
}

interface Omission {
  readonly at: number
  readonly omittedBytes: number
  readonly tail: Buffer
}

/**
 * Finds the mark. It begins up to 3 bytes before `captureBytes`: a character that would be cut
 * there is left out.
 */
function findOmission(bytes: Buffer): Omission {
  const at = bytes.indexOf('\n[... ', captureBytes - 3)
  const [mark = '', omitted = '0'] =
    omissionPattern.exec(bytes.toString('latin1', at, at + 64)) ?? []
  return at === -1 || mark === ''
    ? { at: bytes.length, omittedBytes: 0, tail: Buffer.alloc(0) }
    : { at, omittedBytes: Number(omitted), tail: bytes.subarray(at + mark.length) }
}
