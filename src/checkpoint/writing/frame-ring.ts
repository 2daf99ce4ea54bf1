/** The main thread's side of the ring buffer: puts frames into it. Never changes the tail. */

import { type SharedRecord, unitBytes } from './shared-record.ts'
import type { Segment } from './template.ts'

/**
 * A frame starts with its kind and its size in units of 8 bytes. A `padding` frame fills the unused
 * end of the ring.
 */
export const frameKinds = { padding: 0, line: 1, template: 2 } as const
/** The frame's size in units is in the lower bits of its first word. */
export const sizeBits = 24
const maxFrameUnits = 2 ** sizeBits - 1
/**
 * The number of units before the values of a template frame. They hold its kind, its size, its
 * template and three lengths.
 */
export const headUnits = 2
export const maxUidLength = 200
/** In UTF-16 units, which take at most three bytes each. Longer text cannot use a template. */
const maxTextLength = 4096
const bytesPerUnit = 3
export const maxTextBytes = maxTextLength * bytesPerUnit
/**
 * The number of values is in this many lower bits of the last word before the values. The other
 * bits hold the length of the text in bytes.
 */
export const countBits = 8
const maxTemplateBytes = 16_384
/** A line that takes more than a quarter of the ring is written without the ring. */
const minLinesInRing = 4

/** A template and the content of its holes: the first `count` values, the uid and the text. */
export interface TemplateFrame {
  template: number
  readonly values: Float64Array
  count: number
  uid: string
  text: string
}

export class FrameRing {
  readonly #record: SharedRecord
  readonly #bytes: Buffer
  #head = 0
  /** The tail when it was last read. It is never beyond the current one. */
  #tail = 0
  #templatesEnd = 0

  constructor(record: SharedRecord) {
    this.#record = record
    this.#bytes = Buffer.from(record.memory, record.ring.byteOffset, record.ring.length)
  }

  /** The position after the last frame, including frames that the thread cannot read yet. */
  get head(): number {
    return this.#head
  }

  /** The number of bytes of frames that the thread cannot read yet. */
  get unpublishedBytes(): number {
    return ((this.#head - this.#record.head) | 0) * unitBytes
  }

  get isEmpty(): boolean {
    return this.#head === this.#record.tail
  }

  /** Whether all frames before the position have been written. */
  hasPassed(position: number): boolean {
    return ((this.#record.tail - position) | 0) >= 0
  }

  get isHalfFull(): boolean {
    const usedUnits = (this.#head - this.#tail) | 0
    if (usedUnits * 2 < this.#record.ringUnits) return false
    this.#tail = this.#record.tail
    return ((this.#head - this.#tail) | 0) * 2 >= this.#record.ringUnits
  }

  publish(): void {
    this.#record.publishHead(this.#head)
  }

  canHold(lineBytes: number): boolean {
    const units = unitsOf(lineBytes) + 1
    return units <= maxFrameUnits && units * minLinesInRing <= this.#record.ringUnits
  }

  /** Puts a line of `length` bytes. Returns `false` if the ring has no room for it now. */
  putLine(line: string, length: number): boolean {
    const units = unitsOf(length) + 1
    const at = this.#reserve(units)
    if (at === -1) return false
    const { ringWords } = this.#record
    ringWords[at * 2] = (frameKinds.line << sizeBits) | units
    ringWords[at * 2 + 1] = length
    this.#bytes.write(line, (at + 1) * unitBytes, length)
    this.#head = (this.#head + units) | 0
    return true
  }

  /**
   * Puts a frame for a line with this template. Returns `false` if the ring has no room now.
   * Returns `null` if the frame would be too large, or if the uid has characters that are not ASCII
   * or that JSON escapes.
   */
  putValues({ template, values, count, uid, text }: TemplateFrame): boolean | null {
    const { length } = uid
    if (length > maxUidLength || text.length > maxTextLength) return null
    const most = headUnits + count + unitsOf(length + text.length * bytesPerUnit)
    const { ring, ringWords, ringNumbers, ringUnits } = this.#record
    if (most * minLinesInRing > ringUnits) return null
    const head = this.#head
    const at = this.#reserve(most)
    if (at === -1) return false
    const first = (at + headUnits + count) * unitBytes
    for (let index = 0; index < length; index++) {
      const code = uid.charCodeAt(index)
      if (code < 0x20 || code > 0x7e || code === 0x22 || code === 0x5c) {
        // Removes padding, because a ring that ends with padding never becomes empty.
        this.#head = head
        return null
      }
      ring[first + index] = code
    }
    for (let index = 0; index < count; index++) {
      ringNumbers[at + headUnits + index] = values[index] as number
    }
    const bytes = text === '' ? 0 : this.#bytes.write(text, first + length)
    const units = headUnits + count + unitsOf(length + bytes)
    ringWords[at * 2] = (frameKinds.template << sizeBits) | units
    ringWords[at * 2 + 1] = template
    ringWords[at * 2 + 2] = length
    ringWords[at * 2 + 3] = (bytes << countBits) | count
    this.#head = (this.#head + units) | 0
    return true
  }

  /** Stores a template and returns its position; `null` if it is too large or no room is left. */
  addTemplate(segments: readonly Segment[]): number | null {
    const { templates } = this.#record
    const bytes = Buffer.from(JSON.stringify(segments))
    const at = this.#templatesEnd
    const end = at + 4 + bytes.length
    if (bytes.length > maxTemplateBytes || end > templates.length) return null
    templates.writeInt32LE(bytes.length, at)
    templates.set(bytes, at + 4)
    this.#templatesEnd = end
    return at
  }

  /** The index in the ring for a frame of this size; -1 if there is no room. */
  #reserve(units: number): number {
    const { ringUnits, ringWords } = this.#record
    const at = this.#head & (ringUnits - 1)
    const unitsLeft = ringUnits - at
    const needed = units > unitsLeft ? unitsLeft + units : units
    if (((this.#head - this.#tail) | 0) + needed > ringUnits) {
      this.#tail = this.#record.tail
      if (((this.#head - this.#tail) | 0) + needed > ringUnits) return -1
    }
    if (units <= unitsLeft) return at
    ringWords[at * 2] = (frameKinds.padding << sizeBits) | unitsLeft
    this.#head = (this.#head + unitsLeft) | 0
    return 0
  }
}

const unitsOf = (bytes: number): number => Math.ceil(bytes / unitBytes)
