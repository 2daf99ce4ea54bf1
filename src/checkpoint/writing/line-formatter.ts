/** Turns frames of the ring into the bytes of lines. The only code that does so. */

import type { DerivedIds } from '../../events/derived-ids.ts'
import {
  countBits,
  frameKinds,
  headUnits,
  maxTextBytes,
  maxUidLength,
  sizeBits,
} from './frame-ring.ts'
import { type SharedRecord, unitBytes } from './shared-record.ts'
import { holeKinds, type Segment, timeDigits } from './template.ts'

/** The maximum size of one write. A killed process rarely leaves a small write incomplete. */
export const chunkBytes = 65_536
/** A line made from a template is shorter than this. */
const maxTemplateLine = 32_768
const sizeMask = 2 ** sizeBits - 1

/** A segment of a template, prepared for being copied into a line. */
interface SegmentBytes {
  readonly bytes: Uint8Array
  /** Three numbers for each hole: its offset, its kind, and the index of its value. */
  readonly holes: Int32Array
  readonly nextKind: number
  readonly nextValue: number
}

export class LineFormatter {
  /** The bytes of the chunk that `format` made. */
  readonly bytes = Buffer.allocUnsafeSlow(chunkBytes + maxTemplateLine)
  readonly #record: SharedRecord
  readonly #ids: DerivedIds
  readonly #templates = new Map<number, readonly SegmentBytes[]>()
  /** For each frame of the chunk: the position after it, and the end of its line in `bytes`. */
  readonly #frameEnds: number[] = []
  readonly #lineEnds: number[] = []

  constructor(record: SharedRecord, ids: DerivedIds) {
    this.#record = record
    this.#ids = ids
  }

  /**
   * Formats whole lines up to the size of a chunk, from the frame at `tail`, without the first
   * `skip` bytes. If the first line is longer than a chunk, formats a part of it. Returns the size.
   */
  format(tail: number, skip: number, head: number): number {
    this.#frameEnds.length = 0
    this.#lineEnds.length = 0
    const { ringWords, ringUnits } = this.#record
    let position = tail
    let end = 0
    while (position !== head) {
      const at = position & (ringUnits - 1)
      const first = ringWords[at * 2] as number
      const next = (position + sizeOf(first)) | 0
      const kind = first >>> sizeBits
      if (kind !== frameKinds.padding) {
        const isFirst = this.#frameEnds.length === 0
        const lineEnd =
          kind === frameKinds.line
            ? this.#copyLine(at, end, isFirst ? skip : 0)
            : this.#formatTemplate(at, end, isFirst ? skip : 0)
        if (lineEnd === -1) return isFirst ? chunkBytes : end
        if (lineEnd > chunkBytes && !isFirst) return end
        end = lineEnd
        this.#frameEnds.push(next)
        this.#lineEnds.push(end)
      }
      position = next
    }
    return end
  }

  /**
   * The position after the first frame, and a copy of its line without the first `skip` bytes.
   * Returns `null` if there is no frame.
   */
  readFirst(
    tail: number,
    skip: number,
    head: number,
  ): { readonly next: number; readonly rest: Buffer } | null {
    const { ring, ringWords, ringUnits } = this.#record
    for (let position = tail; position !== head;) {
      const at = position & (ringUnits - 1)
      const first = ringWords[at * 2] as number
      const next = (position + sizeOf(first)) | 0
      const kind = first >>> sizeBits
      if (kind === frameKinds.line) {
        const from = (at + 1) * unitBytes
        const end = from + (ringWords[at * 2 + 1] as number)
        return { next, rest: Buffer.from(ring.slice(from + skip, end)) }
      }
      if (kind === frameKinds.template) {
        const end = this.#formatTemplate(at, 0, skip)
        return { next, rest: Buffer.from(this.bytes.subarray(0, end)) }
      }
      position = next
    }
    return null
  }

  /** The position after the first frame; `null` if there is none. Skips padding. */
  endOfFirst(tail: number, head: number): number | null {
    const { ringWords, ringUnits } = this.#record
    for (let position = tail; position !== head;) {
      const first = ringWords[(position & (ringUnits - 1)) * 2] as number
      position = (position + sizeOf(first)) | 0
      if (first >>> sizeBits !== frameKinds.padding) return position
    }
    return null
  }

  /** Returns the progress once `written` bytes of the chunk are in the file. */
  advance(
    tail: number,
    skip: number,
    written: number,
  ): { readonly tail: number; readonly skip: number; readonly lines: number } {
    let lines = 0
    while (lines < this.#lineEnds.length && (this.#lineEnds[lines] as number) <= written) lines++
    if (lines === 0) return { tail, skip: skip + written, lines }
    const rest = written - (this.#lineEnds[lines - 1] as number)
    return { tail: this.#frameEnds[lines - 1] as number, skip: rest, lines }
  }

  /**
   * Copies a line to the chunk. Returns the end of the line; -1 if it does not fit. A first line
   * that does not fit fills the chunk.
   */
  #copyLine(at: number, end: number, skip: number): number {
    const { ring, ringWords } = this.#record
    const length = (ringWords[at * 2 + 1] as number) - skip
    const from = (at + 1) * unitBytes + skip
    const isTooLong = end + length > chunkBytes
    if (isTooLong && end > 0) return -1
    const copied = isTooLong ? chunkBytes : length
    this.bytes.set(ring.subarray(from, from + copied), end)
    return isTooLong ? -1 : end + length
  }

  #formatTemplate(at: number, start: number, skip: number): number {
    const { ringWords } = this.#record
    const segments = this.#templateAt(ringWords[at * 2 + 1] as number)
    const values = at + headUnits
    const { bytes } = this
    let end = start
    for (const { bytes: text, holes, nextKind, nextValue } of segments) {
      bytes.set(text, end)
      for (let hole = 0; hole < holes.length; hole += 3) {
        this.#fillHole(
          end + (holes[hole] as number),
          holes[hole + 1] as number,
          values + (holes[hole + 2] as number),
        )
      }
      end += text.length
      if (nextKind === holeKinds.uid) end = this.#copyUid(at, end)
      else if (nextKind === holeKinds.text) end = this.#copyText(at, end)
      else if (nextKind === holeKinds.number) {
        end = writeText(bytes, end, String(this.#record.ringNumbers[values + nextValue]))
      }
    }
    if (skip === 0) return end
    bytes.copyWithin(start, start + skip, end)
    return end - skip
  }

  #fillHole(at: number, kind: number, value: number): void {
    const number = this.#record.ringNumbers[value] as number
    if (kind === holeKinds.time) writeTime(this.bytes, at, number)
    else if (kind === holeKinds.spanId) this.#ids.writeSpanId(this.bytes, at, number)
    else this.#ids.writeEventId(this.bytes, at, number)
  }

  #copyUid(at: number, end: number): number {
    const { ring, ringWords } = this.#record
    const length = ringWords[at * 2 + 2] as number
    if (length > maxUidLength) throw overwrittenError()
    const from = this.#textsOf(at)
    for (let index = 0; index < length; index++)
      this.bytes[end + index] = ring[from + index] as number
    return end + length
  }

  #copyText(at: number, end: number): number {
    const { ring, ringWords } = this.#record
    const length = (ringWords[at * 2 + 3] as number) >>> countBits
    if (length === 0) return end
    if (length > maxTextBytes) throw overwrittenError()
    const from = this.#textsOf(at) + (ringWords[at * 2 + 2] as number)
    this.bytes.set(ring.subarray(from, from + length), end)
    return end + length
  }

  /** Returns the byte offset of a frame's uid. The text follows the uid. */
  #textsOf(at: number): number {
    const count = (this.#record.ringWords[at * 2 + 3] as number) & (2 ** countBits - 1)
    return (at + headUnits + count) * unitBytes
  }

  #templateAt(position: number): readonly SegmentBytes[] {
    const known = this.#templates.get(position)
    if (known !== undefined) return known
    const { templates } = this.#record
    const length = templates.readInt32LE(position)
    const text = Buffer.from(templates.subarray(position + 4, position + 4 + length)).toString()
    const segments = (JSON.parse(text) as Segment[]).map((segment) => ({
      bytes: new Uint8Array(Buffer.from(segment.text)),
      holes: Int32Array.from(segment.holes.flatMap(({ at, kind, value }) => [at, kind, value])),
      nextKind: segment.next?.kind ?? -1,
      nextValue: segment.next?.value ?? 0,
    }))
    this.#templates.set(position, segments)
    return segments
  }
}

/** The size of a frame in units. */
function sizeOf(firstWord: number): number {
  const units = firstWord & sizeMask
  if (units === 0) throw overwrittenError()
  return units
}

/** Thrown if the main thread took the lock and overwrote frames while this thread formatted. */
const overwrittenError = (): RangeError => new RangeError('the frame was overwritten')

const zero = 48

/** Writes a time for which `isTemplateTime` is true: ten digits, a point, seven digits. */
export function writeTime(bytes: Uint8Array, at: number, time: number): void {
  const whole = Math.floor(time)
  // Exact, because the fraction is a multiple of 2^-23 and the product is below 2^53.
  const fraction = Math.round((time - whole) * 1e7)
  const upper = Math.floor(whole / 100_000)
  writeDigits(bytes, at, 5, upper)
  writeDigits(bytes, at + 5, 5, whole - upper * 100_000)
  bytes[at + 10] = 46
  writeDigits(bytes, at + 11, timeDigits - 11, fraction)
}

function writeDigits(bytes: Uint8Array, at: number, count: number, value: number): void {
  let left = value | 0
  for (let index = at + count - 1; index >= at; index--) {
    const next = (left / 10) | 0
    bytes[index] = zero + left - next * 10
    left = next
  }
}

function writeText(bytes: Uint8Array, at: number, text: string): number {
  for (let index = 0; index < text.length; index++) bytes[at + index] = text.charCodeAt(index)
  return at + text.length
}
