/**
 * Reads the stored results of a run. One pass locates the values. Each value is read when it is
 * needed.
 */

import { closeSync, fstatSync, readSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { errnoOf } from '../foundation/errors.ts'
import { openRegularFileSync } from '../foundation/regular-file.ts'
import { readFailure } from './files.ts'
import { deserializeValue, type KeptValue } from './kept-value.ts'
import {
  computeDigest,
  entryHeadBytes,
  frameHeadBytes,
  resultsHead,
  resultsPathOf,
} from './results-file.ts'

export interface ValueLocation {
  readonly offset: number
  readonly bytes: number
  readonly crc: number
}

/** The number of bytes read at once. Values that are needed together are usually close together. */
const blockBytes = 262_144

export class ResultsReader implements Disposable {
  readonly path: string
  readonly #id: string
  readonly #fd: number
  readonly #size: number
  /** The reason why `locateValues` did not reach the end of the file; `null` if it did. */
  problem: string | null = null
  #block: Buffer | null = null
  #blockStart = 0
  #blockLength = 0

  /**
   * Opens the results of a record. Returns `null` if there is no file. Throws `CheckpointError` if
   * it cannot be opened.
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
   * Visits the values in the order of the file, up to the first torn or damaged frame. Yields after
   * each block, so that the caller can let other work run.
   */
  *locateValues(visit: (uid: string, at: ValueLocation) => void): Generator<undefined, void> {
    const head = resultsHead(this.#id)
    const found = this.#readAt(0, head.length)
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

  /** Reads a value. Returns `null` if its bytes have changed since `locateValues`. */
  read({ offset, bytes, crc }: ValueLocation): KeptValue | null {
    const found = this.#readAt(offset, bytes)
    if (found === null || crc32(found) !== crc) return null
    return deserializeValue(found)
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd)
  }

  /**
   * Visits the values of a frame. Returns the offset of the next frame; `null` if this frame is
   * torn or damaged.
   */
  #visitFrame(at: number, visit: (uid: string, at: ValueLocation) => void): number | null {
    const head = this.#readAt(at, frameHeadBytes)
    if (head === null) return null
    const length = head.readUInt32LE(0)
    const digest = Buffer.from(head.subarray(4))
    const start = at + frameHeadBytes
    const entries = this.#readAt(start, length)
    if (entries === null || !digest.equals(computeDigest(entries))) return null
    for (let from = 0; from < length;) {
      // The lengths are checked, because the digest does not protect against a crafted file.
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

  /** Reads bytes, which are valid until the next call. Returns `null` beyond the file's end. */
  #readAt(offset: number, length: number): Buffer | null {
    if (offset + length > this.#size) return null
    const isInBlock =
      offset >= this.#blockStart && offset + length <= this.#blockStart + this.#blockLength
    if (isInBlock && this.#block !== null) {
      const from = offset - this.#blockStart
      return this.#block.subarray(from, from + length)
    }
    if (length > blockBytes) {
      const bytes = Buffer.allocUnsafeSlow(length)
      return this.#fillBytes(bytes, offset, length) === length ? bytes : null
    }
    this.#block ??= Buffer.allocUnsafeSlow(blockBytes)
    this.#blockStart = offset
    this.#blockLength = this.#fillBytes(this.#block, offset, blockBytes)
    return this.#blockLength < length ? null : this.#block.subarray(0, length)
  }

  #fillBytes(bytes: Buffer, offset: number, length: number): number {
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
