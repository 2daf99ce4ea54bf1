/** Keeps the beginning and the end of what a program writes, in bounded memory. */

import type { CaptureBounds } from './protocol.ts'

/** Takes any number of bytes; never holds more than the bounds say. */
export class OutputCapture {
  readonly #bounds: CaptureBounds
  #head: Buffer[] = []
  #headBytes = 0
  /** A ring, made when the head is full. */
  #tail: Buffer | undefined
  #tailAt = 0
  #total = 0

  constructor(bounds: CaptureBounds) {
    this.#bounds = bounds
  }

  /** How many bytes came so far. */
  get total(): number {
    return this.#total
  }

  /** Copies what it keeps: the bytes may be reused. */
  push(bytes: Uint8Array): void {
    this.#total += bytes.length
    const room = this.#bounds.headBytes - this.#headBytes
    if (room > 0) {
      const kept = Buffer.from(bytes.subarray(0, room))
      this.#head.push(kept)
      this.#headBytes += kept.length
    }
    if (bytes.length > room) this.#pushTail(room > 0 ? bytes.subarray(room) : bytes)
  }

  /** As UTF-8 with replacement; a marker line stands for what was left out. */
  text(): string {
    if (this.#total === 0) return ''
    const head = Buffer.concat(this.#head)
    const tail = this.#orderedTail()
    const omitted = this.#total - head.length - tail.length
    if (omitted === 0) return Buffer.concat([head, tail]).toString()
    const [whole, rest] = [withoutCutEnd(head), withoutCutStart(tail)]
    const leftOut = this.#total - whole.length - rest.length
    return `${whole.toString()}\n[... ${leftOut} bytes left out ...]\n${rest.toString()}`
  }

  #pushTail(bytes: Uint8Array): void {
    const size = this.#bounds.tailBytes
    this.#tail ??= Buffer.allocUnsafe(size)
    const kept = bytes.length > size ? bytes.subarray(bytes.length - size) : bytes
    // Positions count all bytes, so the skipped ones move the ring on too.
    const start = (this.#tailAt + bytes.length - kept.length) % size
    const first = kept.subarray(0, size - start)
    this.#tail.set(first, start)
    this.#tail.set(kept.subarray(first.length), 0)
    this.#tailAt += bytes.length
  }

  #orderedTail(): Buffer {
    if (this.#tail === undefined) return Buffer.alloc(0)
    if (this.#tailAt <= this.#tail.length) return this.#tail.subarray(0, this.#tailAt)
    const start = this.#tailAt % this.#tail.length
    return Buffer.concat([this.#tail.subarray(start), this.#tail.subarray(0, start)])
  }
}

const isContinuation = (byte: number | undefined): boolean =>
  byte !== undefined && (byte & 0xc0) === 0x80

/** Without the beginning of a character whose rest was left out. */
function withoutCutEnd(bytes: Buffer): Buffer {
  let start = bytes.length - 1
  while (start > bytes.length - 4 && isContinuation(bytes[start])) start--
  const lead = bytes[start] ?? 0
  const width = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1
  return bytes.length - start < width ? bytes.subarray(0, start) : bytes
}

/** Without the rest of a character whose beginning was left out. */
function withoutCutStart(bytes: Buffer): Buffer {
  let start = 0
  while (start < 3 && isContinuation(bytes[start])) start++
  return bytes.subarray(start)
}
