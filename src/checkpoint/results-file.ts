/**
 * Stores the results of tasks in a file next to the record, for a later run. Each frame has a
 * length and a digest, so that a reader detects torn or damaged data.
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
import { serializeValue } from './kept-value.ts'
import { companionPath } from './record-names.ts'

/**
 * The first line of the file. Its id prevents a reader from using the results of another record.
 */
export const resultsHead = (id: string): Buffer => Buffer.from(`tutti-results/2 ${id}\n`)

/** The unique id of a record, from its SessionStarted event. */
export const recordIdOf = (start: {
  readonly trace_id: string
  readonly span_id: string
}): string => `${start.trace_id}-${start.span_id}`

const digestBytes = 16
/** The size of a frame's head, which contains the length and the digest of the entries. */
export const frameHeadBytes = 4 + digestBytes
/** The size of an entry's head, which contains the lengths of the uid and the value. */
export const entryHeadBytes = 8
/** The maximum size of all entries in a frame, unless it has a single larger entry. */
const frameBytes = 262_144

export const resultsPathOf = (record: string): string => companionPath(record, '.results')

export const computeDigest = (entries: Uint8Array): Buffer =>
  hash('sha256', entries, 'buffer').subarray(0, digestBytes)

export interface ResultsFileOptions {
  readonly record: string
  readonly id: string
  readonly files: FileOperations
  readonly log: Log
  /** The maximum size of a value. Larger values are not stored. */
  readonly maxBytes: number
  readonly durability: 'os' | 'fsync'
}

export class ResultsFile {
  readonly #options: ResultsFileOptions
  readonly #path: string
  readonly #fd: number
  readonly #commit: GroupCommit | undefined
  #frame = Buffer.allocUnsafeSlow(frameHeadBytes + frameBytes)
  #usedBytes = frameHeadBytes
  /** The number of bytes of complete frames in the file. */
  #writtenBytes = 0
  #hasWarned = false
  #isBroken = false

  /** Creates the file. Only its owner can read it, because values may be confidential. */
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

  /** Adds a value, unless it is too large or cannot be restored exactly. Never throws. */
  append(uid: string, value: unknown): void {
    const bytes = serializeValue(value)
    if (bytes === null || bytes.length > this.#options.maxBytes) return
    const uidBytes = Buffer.byteLength(uid)
    const size = entryHeadBytes + uidBytes + bytes.length
    if (this.#usedBytes + size > this.#frame.length) this.#resizeFrame(size)
    const frame = this.#frame
    let at = frame.writeUInt32LE(uidBytes, this.#usedBytes)
    at = frame.writeUInt32LE(bytes.length, at)
    at += frame.write(uid, at)
    frame.set(bytes, at)
    this.#usedBytes = at + bytes.length
  }

  /** Writes the buffered values, and drops them if that fails. Never throws. */
  write(): void {
    if (this.#usedBytes === frameHeadBytes) return
    // The head is missing if an earlier attempt to write it failed, for example because the disk
    // was full.
    if (this.#writtenBytes === 0) this.#writeHead()
    const frame = this.#frame
    const entries = frame.subarray(frameHeadBytes, this.#usedBytes)
    frame.writeUInt32LE(entries.length, 0)
    computeDigest(entries).copy(frame, 4)
    if (this.#writtenBytes > 0) this.#writeBytes(frame, this.#usedBytes)
    this.#usedBytes = frameHeadBytes
  }

  /** With `fsync`, resolves when everything written is on the disk. */
  async flush(): Promise<void> {
    await this.#commit?.whenSynced()
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

  #resizeFrame(size: number): void {
    this.write()
    const needed = frameHeadBytes + Math.max(size, frameBytes)
    if (this.#frame.length !== needed) this.#frame = Buffer.allocUnsafeSlow(needed)
  }

  #writeHead(): void {
    const head = resultsHead(this.#options.id)
    this.#writeBytes(head, head.length)
  }

  /** Writes a frame. After an error, removes the torn frame, because readers stop at it. */
  #writeBytes(bytes: Buffer, length: number): void {
    if (this.#isBroken) return
    const { files } = this.#options
    let offset = 0
    try {
      while (offset < length) {
        offset += writeSome(files, this.#fd, { bytes, offset, length: length - offset })
      }
      this.#writtenBytes += length
      this.#commit?.requestSync()
    } catch (error) {
      this.#warn(error)
      if (offset > 0) this.#truncateTornFrame()
    }
  }

  #truncateTornFrame(): void {
    try {
      this.#options.files.truncate(this.#fd, this.#writtenBytes)
    } catch {
      this.#isBroken = true
    }
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    const text = `a result is not kept (${errnoOf(error)}): ${this.#path}: ${messageOf(error)}`
    this.#options.log.warn('ResultNotKept', `${text}; its task would run again after a resume`)
  }
}
