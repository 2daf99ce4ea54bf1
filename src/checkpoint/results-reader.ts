/** Reads the stored values of a run: one pass locates all values; each is then read when needed. */

import { closeSync, fstatSync, readSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { errnoOf } from '../foundation/errors.ts'
import { openRegularFileSync } from '../foundation/regular-file.ts'
import { readFailure } from './files.ts'
import { fromBytes, type KeptValue } from './kept-value.ts'
import {
  digestOf,
  entryHeadBytes,
  frameHeadBytes,
  resultsHead,
  resultsPathOf,
} from './results-file.ts'

/** The position of a value in the file. */
export interface ValueLocation {
  readonly offset: number
  readonly bytes: number
  /** The CRC of the bytes when they were located. */
  readonly crc: number
}

/** The number of bytes per read; values that are needed together are usually close together. */
const blockBytes = 262_144

export class ResultsReader implements Disposable {
  readonly path: string
  readonly #id: string
  readonly #fd: number
  readonly #size: number
  /** The reason why `find` stopped before the end of the file; `null` if it did not. */
  problem: string | null = null
  #block: Buffer | null = null
  #blockStart = 0
  #blockLength = 0

  /**
   * Returns `null` when no results were stored, or only those of a record with another `id`. Throws
   * `CheckpointError` when the file cannot be opened.
   */
  static open(record: string, id: string): ResultsReader | null {
    const path = resultsPathOf(record)
    try {
      return new ResultsReader(path, id, openRegularFileSync(path))
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return null
      throw readFailure('the results', path, error)
    }
  }

  private constructor(path: string, id: string, fd: number) {
    this.path = path
    this.#id = id
    this.#fd = fd
    this.#size = fstatSync(fd).size
  }

  /**
   * Visits every value in the order of the file, up to the first torn or damaged frame. Yields
   * between blocks, so that the caller can let other work run.
   */
  *find(visit: (uid: string, at: ValueLocation) => void): Generator<undefined, void> {
    const head = resultsHead(this.#id)
    const found = this.#bytesAt(0, head.length)
    if (found === null || !head.equals(found)) {
      this.problem = 'is of another record'
      return
    }
    let yieldAt = blockBytes
    for (let at = head.length; ;) {
      const next = this.#visitFrame(at, visit)
      if (next === null) {
        if (at < this.#size) this.problem = `is torn or damaged from byte ${at} on`
        return
      }
      at = next
      if (at < yieldAt) continue
      yieldAt = at + blockBytes
      yield undefined
    }
  }

  /** The value at a location from `find`; `null` if its bytes have changed since. */
  read({ offset, bytes, crc }: ValueLocation): KeptValue | null {
    const found = this.#bytesAt(offset, bytes)
    if (found === null || crc32(found) !== crc) return null
    return fromBytes(found)
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd)
  }

  /** Returns the offset of the next frame; `null` if this frame is incomplete or damaged. */
  #visitFrame(at: number, visit: (uid: string, at: ValueLocation) => void): number | null {
    const head = this.#bytesAt(at, frameHeadBytes)
    if (head === null) return null
    const length = head.readUInt32LE(0)
    const digest = Buffer.from(head.subarray(4))
    const start = at + frameHeadBytes
    const entries = this.#bytesAt(start, length)
    if (entries === null || !digest.equals(digestOf(entries))) return null
    for (let from = 0; from < length;) {
      // Check the lengths, because the digest does not protect against a crafted file.
      if (from + entryHeadBytes > length) return null
      const uidBytes = entries.readUInt32LE(from)
      const bytes = entries.readUInt32LE(from + 4)
      const valueAt = from + entryHeadBytes + uidBytes
      if (valueAt + bytes > length) return null
      const uid = entries.toString('utf8', from + entryHeadBytes, valueAt)
      const crc = crc32(entries.subarray(valueAt, valueAt + bytes))
      visit(uid, { offset: start + valueAt, bytes, crc })
      from = valueAt + bytes
    }
    return start + length
  }

  /** The returned bytes are valid until the next call. */
  #bytesAt(offset: number, length: number): Buffer | null {
    if (offset + length > this.#size) return null
    const isInBlock =
      offset >= this.#blockStart && offset + length <= this.#blockStart + this.#blockLength
    if (isInBlock && this.#block !== null) {
      const from = offset - this.#blockStart
      return this.#block.subarray(from, from + length)
    }
    if (length > blockBytes) {
      const bytes = Buffer.allocUnsafeSlow(length)
      return this.#fill(bytes, offset, length) === length ? bytes : null
    }
    this.#block ??= Buffer.allocUnsafeSlow(blockBytes)
    this.#blockStart = offset
    this.#blockLength = this.#fill(this.#block, offset, blockBytes)
    return this.#blockLength < length ? null : this.#block.subarray(0, length)
  }

  #fill(bytes: Buffer, offset: number, length: number): number {
    let filled = 0
    try {
      while (filled < length) {
        const read = readSync(this.#fd, bytes, filled, length - filled, offset + filled)
        if (read === 0) break
        filled += read
      }
    } catch (error) {
      throw readFailure('the results', this.path, error)
    }
    return filled
  }
}
