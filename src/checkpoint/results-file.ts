/**
 * The file next to a record that stores the results of its tasks for a later run. Append-only: each
 * frame has a length, a digest and entries, so that torn or damaged data at the end is detected and
 * removed.
 */

import { hash } from 'node:crypto'
import { errnoOf, messageOf } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import {
  checkpointFailure,
  type FileOperations,
  GroupCommit,
  newFileFlags,
  writeSome,
} from './files.ts'
import { toBytes } from './kept-value.ts'

/** The first line of the file; its record id prevents using the results of another record. */
export const resultsHead = (id: string): Buffer => Buffer.from(`tutti-results/2 ${id}\n`)

/** The id of a record, from its SessionStarted event; unique per file. */
export const recordIdOf = (start: {
  readonly trace_id: string
  readonly span_id: string
}): string => `${start.trace_id}-${start.span_id}`

const digestBytes = 16
/** A frame begins with the length of its entries and their digest. */
export const frameHeadBytes = 4 + digestBytes
/** An entry begins with the lengths of its uid and its value. */
export const entryHeadBytes = 8
/** The approximate size of the entries in a frame, which has at least one. */
const frameBytes = 262_144

const suffix = /\.telemetry\.jsonl(?:\.zst)?$/

/** A repaired record uses the results of the original. */
export const resultsPathOf = (record: string): string =>
  `${record.replace(suffix, '').replace(/\.repaired$/, '')}.results`

export const digestOf = (entries: Uint8Array): Buffer =>
  hash('sha256', entries, 'buffer').subarray(0, digestBytes)

export interface ResultsFileOptions {
  readonly record: string
  /** The id from `recordIdOf`. */
  readonly id: string
  readonly files: FileOperations
  readonly log: Log
  /** Larger values are not stored. */
  readonly maxBytes: number
  readonly durability: 'os' | 'fsync'
}

export class ResultsFile {
  readonly #options: ResultsFileOptions
  readonly #path: string
  readonly #fd: number
  readonly #commit: GroupCommit | undefined
  #frame = Buffer.allocUnsafeSlow(frameHeadBytes + frameBytes)
  #used = frameHeadBytes
  /** The number of bytes of complete frames in the file. */
  #written = 0
  #hasWarned = false
  #isBroken = false

  /** The file is readable only by its owner, because values may be confidential. */
  constructor(options: ResultsFileOptions) {
    this.#options = options
    this.#path = resultsPathOf(options.record)
    const { files } = options
    try {
      this.#fd = files.open(this.#path, newFileFlags, 0o600)
    } catch (error) {
      throw checkpointFailure('open the file of results', this.#path, error)
    }
    if (options.durability === 'fsync') {
      this.#commit = new GroupCommit(
        async () => files.fdatasync(this.#fd),
        (error) => this.#warn(error),
      )
    }
    this.#writeHead()
  }

  /** Buffers a value, unless it is too large or cannot be restored exactly. Never throws. */
  append(uid: string, value: unknown): void {
    const bytes = toBytes(value)
    if (bytes === null || bytes.length > this.#options.maxBytes) return
    const uidBytes = Buffer.byteLength(uid)
    const size = entryHeadBytes + uidBytes + bytes.length
    if (this.#used + size > this.#frame.length) this.#makeRoom(size)
    const frame = this.#frame
    let at = frame.writeUInt32LE(uidBytes, this.#used)
    at = frame.writeUInt32LE(bytes.length, at)
    at += frame.write(uid, at)
    frame.set(bytes, at)
    this.#used = at + bytes.length
  }

  /** Writes the buffered values. Values that cannot be written are dropped. Never throws. */
  write(): void {
    if (this.#used === frameHeadBytes) return
    // The head could not be written earlier, for example because the disk was full.
    if (this.#written === 0) this.#writeHead()
    const frame = this.#frame
    const entries = frame.subarray(frameHeadBytes, this.#used)
    frame.writeUInt32LE(entries.length, 0)
    digestOf(entries).copy(frame, 4)
    if (this.#written > 0) this.#writeBytes(frame, this.#used)
    this.#used = frameHeadBytes
  }

  /** Resolves when everything written is synced to the disk, if `durability` is `fsync`. */
  async flush(): Promise<void> {
    await this.#commit?.settled()
  }

  /** Writes the buffered values and closes the file. Never rejects. */
  async close(): Promise<void> {
    this.write()
    await this.flush().catch(() => {})
    try {
      this.#options.files.close(this.#fd)
    } catch (error) {
      this.#warn(error)
    }
  }

  /** Enlarges the buffer for a large value, and shrinks it again with the next frame. */
  #makeRoom(size: number): void {
    this.write()
    const needed = frameHeadBytes + Math.max(size, frameBytes)
    if (this.#frame.length !== needed) this.#frame = Buffer.allocUnsafeSlow(needed)
  }

  #writeHead(): void {
    const head = resultsHead(this.#options.id)
    this.#writeBytes(head, head.length)
  }

  /** After an error, removes the torn frame: a reader would not find the frames after it. */
  #writeBytes(bytes: Buffer, length: number): void {
    if (this.#isBroken) return
    const { files } = this.#options
    let offset = 0
    try {
      while (offset < length) {
        offset += writeSome(files, this.#fd, { bytes, offset, length: length - offset })
      }
      this.#written += length
      this.#commit?.wrote()
    } catch (error) {
      this.#warn(error)
      if (offset > 0) this.#cutTail()
    }
  }

  #cutTail(): void {
    try {
      this.#options.files.truncate(this.#fd, this.#written)
    } catch {
      this.#isBroken = true
    }
  }

  /** Warns only once, because further warnings would be the same. */
  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    const text = `a result is not kept (${errnoOf(error)}): ${this.#path}: ${messageOf(error)}`
    this.#options.log.warn('ResultNotKept', `${text}; its task would run again after a resume`)
  }
}
