/** Reads a checkpoint of a live or crashed run as a stream. Does not throw for any file content. */

import { constants } from 'node:buffer'
import type { FileHandle } from 'node:fs/promises'
import { expectInteger } from '../foundation/options.ts'
import { openRegularFile } from '../foundation/regular-file.ts'
import { decompressFrames, readPiped, isCompressed, type RecordPart } from './compressed.ts'
import { readFailure } from './files.ts'
import { type CheckpointLine, isWholeSpan, parseLine } from './format.ts'

/** A skipped line: its number, its byte offset, and the reason. */
export interface BadLine extends LinePosition {
  readonly reason: string
}

export interface ReadOptions {
  /** A longer line is skipped as bad and never kept in memory. Default 64 MiB. */
  readonly maxLineBytes?: number
  /** Aborts the reading; the generator then throws the signal's reason. */
  readonly signal?: AbortSignal
  /** Called after each block with the byte offset reached, and the path of the file. */
  readonly onRead?: (bytes: number, path: string) => void
  /** Called for each bad line, in order, but not for a torn last line. */
  readonly onBadLine?: (bad: BadLine) => void
  /**
   * Called for each non-empty line, before its batch is yielded, with its text and its problem, or
   * `null`. The text is `null` for a line that is too long, and for lines lost in a damaged
   * compressed file.
   */
  readonly onText?: (text: string | null, position: LinePosition, problem: string | null) => void
  /** Called for each good line, except skipped spans, before its batch is yielded. */
  readonly onLine?: (line: CheckpointLine, position: LinePosition) => void
  /** The position where an earlier reading ended (`ReadSummary.end`). Default: the beginning. */
  readonly from?: LinePosition
  /**
   * Neither parses nor yields the lines of spans; checks only that they are complete. Default
   * `false`.
   */
  readonly skipSpans?: boolean
  /**
   * Ignores a last line without a newline, even if it is complete: for growing files, where the
   * next reading starts with that line. Default `false`.
   */
  readonly onlyWholeLines?: boolean
}

export interface ReadSummary {
  /** The number of good lines, all of which were yielded, except skipped spans. */
  readonly lines: number
  readonly bad: number
  /** The number of lines with an unknown section. */
  readonly unknown: number
  /** The last line, when a crash or a live writer left it incomplete. */
  readonly torn: BadLine | null
  /** The byte offset up to which the file was read. */
  readonly bytes: number
  /** The position after the last newline. */
  readonly end: LinePosition
}

const readBytes = 262_144
/** Read as a stream, because standard input may be a socket, which cannot be opened by its path. */
export const standardInput = '/dev/stdin'

/** Yields the good lines in order. Breaking out of the loop closes the file. */
export async function* readCheckpoint(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<CheckpointLine, ReadSummary> {
  const reading = new Reading(options)
  for await (const batch of reading.read(path)) yield* batch
  return reading.summary()
}

/** Like `readCheckpoint`, but yields one array per block, which saves an await per line. */
export async function* readBatches(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<readonly CheckpointLine[], ReadSummary> {
  const reading = new Reading(options)
  for await (const batch of reading.read(path)) yield batch
  return reading.summary()
}

/** One pass over one file, with line counts. */
class Reading {
  readonly #options: ReadOptions
  readonly #splitter: LineSplitter
  #batch: CheckpointLine[] = []
  #lines = 0
  #bad = 0
  #unknown = 0
  #torn: BadLine | null = null
  #bytes: number

  constructor(options: ReadOptions) {
    const { maxLineBytes = 64 * 2 ** 20, from = { line: 1, offset: 0 } } = options
    const range = { min: 1, max: constants.MAX_STRING_LENGTH }
    this.#options = options
    this.#bytes = from.offset
    this.#splitter = new LineSplitter(
      expectInteger('maxLineBytes', maxLineBytes, range),
      from,
      (text, line, offset) => this.#take(text, { line, offset }, false),
    )
  }

  async *read(path: string): AsyncGenerator<readonly CheckpointLine[], void> {
    const file = path === standardInput ? null : await openFile(path)
    try {
      this.#options.signal?.throwIfAborted()
      for await (const part of partsOf(file, path, this.#bytes)) {
        this.#options.signal?.throwIfAborted()
        if (part.kind === 'bytes') {
          this.#bytes += part.bytes.length
          this.#splitter.push(part.bytes)
        } else this.#miss(part)
        this.#options.onRead?.(this.#bytes, path)
        if (this.#batch.length > 0) yield this.#takeBatch()
      }
      const tail = this.#splitter.end()
      if (tail !== undefined) this.#take(tail.text, tail.position, true)
      if (this.#batch.length > 0) yield this.#takeBatch()
    } finally {
      await file?.close()
    }
  }

  summary(): ReadSummary {
    return {
      lines: this.#lines,
      bad: this.#bad,
      unknown: this.#unknown,
      torn: this.#torn,
      bytes: this.#bytes,
      end: this.#splitter.position,
    }
  }

  /** Reports an unreadable part of a compressed record, and drops the line cut off by it. */
  #miss(part: Exclude<RecordPart, { readonly kind: 'bytes' }>): void {
    const { kind, reason, missingBytes } = part
    const bad = { ...this.#splitter.position, reason }
    this.#splitter.forget(missingBytes)
    this.#bytes += missingBytes
    this.#options.onText?.(null, bad, reason)
    if (kind === 'torn') {
      this.#torn = bad
      return
    }
    this.#bad++
    this.#options.onBadLine?.(bad)
  }

  #take(text: string | null, position: LinePosition, isTail: boolean): void {
    if (isTail && this.#options.onlyWholeLines === true) {
      this.#torn = { ...position, reason: 'no newline ends it' }
      return
    }
    if (text !== null && this.#options.skipSpans === true && isWholeSpan(text)) {
      this.#lines++
      return
    }
    const parsed = text === null ? tooLong : parseLine(text)
    if (parsed.kind !== 'empty') {
      this.#options.onText?.(text, position, 'reason' in parsed ? parsed.reason : null)
    }
    if (parsed.kind === 'line') {
      this.#options.onLine?.(parsed.line, position)
      this.#batch.push(parsed.line)
      this.#lines++
    } else if (parsed.kind === 'unknown') {
      this.#unknown++
    } else if (parsed.kind === 'broken' && isTail) {
      this.#torn = { ...position, reason: parsed.reason }
    } else if (parsed.kind !== 'empty') {
      this.#bad++
      this.#options.onBadLine?.({ ...position, reason: parsed.reason })
    }
  }

  #takeBatch(): readonly CheckpointLine[] {
    const batch = this.#batch
    this.#batch = []
    return batch
  }
}

const tooLong = { kind: 'broken', reason: 'longer than `maxLineBytes`' } as const

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await openRegularFile(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Yields the bytes of the record, starting at `offset`; the chunks reuse one buffer. */
async function* partsOf(
  file: FileHandle | null,
  path: string,
  offset: number,
): AsyncGenerator<RecordPart, void> {
  try {
    if (file === null) yield* readPiped(process.stdin as AsyncIterable<Buffer>)
    else if (isCompressed(path)) yield* decompressFrames(file, offset)
    else yield* plainParts(file, offset)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

async function* plainBytes(file: FileHandle, offset: number): AsyncGenerator<Buffer, void> {
  const buffer = Buffer.allocUnsafeSlow(readBytes)
  // A pipe cannot be read at a position.
  let position = offset === 0 ? null : offset
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position)
    if (bytesRead === 0) return
    if (position !== null) position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

async function* plainParts(file: FileHandle, offset: number): AsyncGenerator<RecordPart, void> {
  for await (const bytes of plainBytes(file, offset)) yield { kind: 'bytes', bytes }
}

/** The position of the beginning of a line. */
export interface LinePosition {
  /** The line number, from 1. */
  readonly line: number
  /** The byte offset. */
  readonly offset: number
}

/** Called with a line without its newline; the text is `null` if the line was too long. */
type LineVisitor = (text: string | null, line: number, offset: number) => void

const newline = 0x0a
const byteOrderMark = '\uFEFF'

/**
 * Splits bytes into lines at 0x0A only. Buffers at most the incomplete line at the end of the last
 * chunk. Replaces invalid UTF-8 instead of rejecting it.
 */
class LineSplitter {
  readonly #maxLineBytes: number
  readonly #visit: LineVisitor
  #parts: Buffer[] = []
  #openBytes = 0
  #line: number
  #offset: number

  constructor(maxLineBytes: number, from: LinePosition, visit: LineVisitor) {
    this.#maxLineBytes = maxLineBytes
    this.#line = from.line
    this.#offset = from.offset
    this.#visit = visit
  }

  /** The position of the line that has no newline yet. */
  get position(): LinePosition {
    return { line: this.#line, offset: this.#offset }
  }

  /** Visits every line that ends in this chunk; the chunk may be reused afterwards. */
  push(chunk: Buffer): void {
    let start = 0
    for (;;) {
      const end = chunk.indexOf(newline, start)
      if (end < 0) break
      this.#finish(chunk, start, end)
      start = end + 1
    }
    this.#keep(chunk.subarray(start))
  }

  /** The last line if it has no newline; `undefined` otherwise. */
  end(): { readonly text: string | null; readonly position: LinePosition } | undefined {
    if (this.#openBytes === 0) return undefined
    const text = this.#isTooLong(this.#openBytes) ? null : this.#joined()
    return { text, position: this.position }
  }

  /** Drops the line that has no newline yet, and skips the missing bytes after it. */
  forget(missingBytes: number): void {
    this.#offset += this.#openBytes + missingBytes
    this.#openBytes = 0
    this.#parts = []
  }

  #finish(chunk: Buffer, start: number, end: number): void {
    const size = this.#openBytes + end - start
    this.#visit(this.#textOf(chunk, start, end, size), this.#line, this.#offset)
    this.#line++
    this.#offset += size + 1
    this.#openBytes = 0
    this.#parts = []
  }

  #textOf(chunk: Buffer, start: number, end: number, size: number): string | null {
    if (this.#isTooLong(size)) return null
    if (this.#parts.length === 0)
      return this.#withoutByteOrderMark(chunk.toString('utf8', start, end))
    this.#parts.push(chunk.subarray(start, end))
    return this.#joined()
  }

  #keep(rest: Buffer): void {
    if (rest.length === 0) return
    this.#openBytes += rest.length
    if (this.#isTooLong(this.#openBytes)) this.#parts = []
    else this.#parts.push(Buffer.from(rest))
  }

  #joined(): string {
    return this.#withoutByteOrderMark(Buffer.concat(this.#parts).toString('utf8'))
  }

  #withoutByteOrderMark(text: string): string {
    return this.#offset === 0 && text.startsWith(byteOrderMark) ? text.slice(1) : text
  }

  #isTooLong(bytes: number): boolean {
    return bytes > this.#maxLineBytes
  }
}
