/** Reads a checkpoint of a live or crashed run as a stream. Never throws because of the content. */

import { constants } from 'node:buffer'
import type { FileHandle } from 'node:fs/promises'
import { expectInteger } from '../foundation/options.ts'
import { openRegularFile } from '../foundation/regular-file.ts'
import { decompressFrames, readPipe, isCompressed, type RecordPart } from './compressed.ts'
import { readFailure } from './files.ts'
import { type CheckpointLine, isCompleteSpan, isRequestSpan, parseLine } from './format.ts'

/** The position of a line that was skipped because it is broken, invalid or too long. */
export interface BadLine extends LinePosition {
  readonly reason: string
}

export interface ReadOptions {
  /** The maximum length of a line. A longer line counts as bad. Default 64 MiB. */
  readonly maxLineBytes?: number
  /** Aborting this signal stops reading. The generator then throws the signal's reason. */
  readonly signal?: AbortSignal
  /** Called after each block with the byte offset that was reached, and the path of the file. */
  readonly onRead?: (bytes: number, path: string) => void
  /** Called for each bad line except a torn last line. */
  readonly onBadLine?: (bad: BadLine) => void
  /**
   * Called for each line that is neither empty nor skipped, before its batch is yielded. `problem`
   * is `null` for a good line. The text is `null` if the line is too long, or lost in a damaged
   * compressed file.
   */
  readonly onText?: (text: string | null, position: LinePosition, problem: string | null) => void
  /** Called for each good line that is not skipped, before its batch is yielded. */
  readonly onLine?: (line: CheckpointLine, position: LinePosition) => void
  /** The position where an earlier reading ended (`ReadSummary.end`). Default: the beginning. */
  readonly from?: LinePosition
  /** Whether to skip spans, which are then only checked for completeness. Default `false`. */
  readonly skipSpans?: boolean
  /** Whether `skipSpans` keeps the spans of requests to models. Default `false`. */
  readonly keepRequestSpans?: boolean
  /** Skips lines without this text: they are not parsed, and count as good. Default: none. */
  readonly contains?: string
  /** Whether to leave a last line without a newline for the next reading. Default `false`. */
  readonly onlyWholeLines?: boolean
}

export interface ReadSummary {
  /** The number of good lines, including skipped spans. */
  readonly lines: number
  readonly bad: number
  /** The number of lines with an unknown section. */
  readonly unknown: number
  /** The incomplete last line; `null` if there is none. */
  readonly torn: BadLine | null
  /** The byte offset at which reading stopped. */
  readonly bytes: number
  /** The position after the last newline. */
  readonly end: LinePosition
}

const chunkBytes = 262_144
/** The path of the standard input, which is read as a stream, because a socket cannot be opened. */
export const standardInput = '/dev/stdin'

/** Yields the good lines in order. Breaking out of the loop closes the file. */
export async function* readCheckpoint(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<CheckpointLine, ReadSummary> {
  const reading = new FileReading(options)
  for await (const batch of reading.read(path)) yield* batch
  return reading.summary()
}

/** Like `readCheckpoint`, but yields one array per block, which saves an `await` per line. */
export async function* readBatches(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<readonly CheckpointLine[], ReadSummary> {
  const reading = new FileReading(options)
  yield* reading.read(path)
  return reading.summary()
}

class FileReading {
  readonly #options: ReadOptions
  readonly #splitter: LineSplitter
  #batch: CheckpointLine[] = []
  #lines = 0
  #badCount = 0
  #unknownCount = 0
  #tornLine: BadLine | null = null
  #bytes: number

  constructor(options: ReadOptions) {
    const { maxLineBytes = 64 * 2 ** 20, from = { line: 1, offset: 0 } } = options
    const range = { min: 1, max: constants.MAX_STRING_LENGTH }
    this.#options = options
    this.#bytes = from.offset
    this.#splitter = new LineSplitter(
      expectInteger('maxLineBytes', maxLineBytes, range),
      from,
      (text, line, offset) => this.#handleLine(text, { line, offset }, false),
    )
  }

  async *read(path: string): AsyncGenerator<readonly CheckpointLine[], void> {
    const file = path === standardInput ? null : await openFile(path)
    try {
      this.#options.signal?.throwIfAborted()
      for await (const part of readParts(file, path, this.#bytes)) {
        this.#options.signal?.throwIfAborted()
        if (part.kind === 'bytes') {
          this.#bytes += part.bytes.length
          this.#splitter.push(part.bytes)
        } else this.#reportMissing(part)
        this.#options.onRead?.(this.#bytes, path)
        if (this.#batch.length > 0) yield this.#flushBatch()
      }
      const tail = this.#splitter.end()
      if (tail !== undefined) this.#handleLine(tail.text, tail.position, true)
      if (this.#batch.length > 0) yield this.#flushBatch()
    } finally {
      await file?.close()
    }
  }

  summary(): ReadSummary {
    return {
      lines: this.#lines,
      bad: this.#badCount,
      unknown: this.#unknownCount,
      torn: this.#tornLine,
      bytes: this.#bytes,
      end: this.#splitter.position,
    }
  }

  #reportMissing(part: Exclude<RecordPart, { readonly kind: 'bytes' }>): void {
    const { kind, reason, missingBytes } = part
    const badLine = { ...this.#splitter.position, reason }
    this.#splitter.skipMissing(missingBytes)
    this.#bytes += missingBytes
    this.#options.onText?.(null, badLine, reason)
    if (kind === 'torn') {
      this.#tornLine = badLine
      return
    }
    this.#badCount++
    this.#options.onBadLine?.(badLine)
  }

  #handleLine(text: string | null, position: LinePosition, isTail: boolean): void {
    if (isTail && this.#options.onlyWholeLines === true) {
      this.#tornLine = { ...position, reason: 'no newline ends it' }
      return
    }
    const { contains = '', skipSpans = false, keepRequestSpans = false } = this.#options
    const isOther = contains !== '' && !isTail && text?.includes(contains) === false
    const isSpan = skipSpans && text !== null && isCompleteSpan(text)
    if (isOther || (isSpan && !(keepRequestSpans && isRequestSpan(text)))) {
      this.#lines++
      return
    }
    const parsed = text === null ? lineTooLong : parseLine(text)
    if (parsed.kind !== 'empty') {
      this.#options.onText?.(text, position, 'reason' in parsed ? parsed.reason : null)
    }
    if (parsed.kind === 'line') {
      this.#options.onLine?.(parsed.line, position)
      this.#batch.push(parsed.line)
      this.#lines++
    } else if (parsed.kind === 'unknown') {
      this.#unknownCount++
    } else if (parsed.kind === 'broken' && isTail) {
      this.#tornLine = { ...position, reason: parsed.reason }
    } else if (parsed.kind !== 'empty') {
      this.#badCount++
      this.#options.onBadLine?.({ ...position, reason: parsed.reason })
    }
  }

  #flushBatch(): readonly CheckpointLine[] {
    const batch = this.#batch
    this.#batch = []
    return batch
  }
}

const lineTooLong = { kind: 'broken', reason: 'longer than `maxLineBytes`' } as const

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await openRegularFile(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Yields the content of a file in chunks. A chunk is valid only until the next one is read. */
async function* readParts(
  file: FileHandle | null,
  path: string,
  offset: number,
): AsyncGenerator<RecordPart, void> {
  try {
    if (file === null) yield* readPipe(process.stdin as AsyncIterable<Buffer>)
    else if (isCompressed(path)) yield* decompressFrames(file, offset)
    else yield* readPlain(file, offset)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

async function* readPlain(file: FileHandle, offset: number): AsyncGenerator<RecordPart, void> {
  const buffer = Buffer.allocUnsafeSlow(chunkBytes)
  // `null` reads at the current position. A pipe supports only that.
  let position = offset === 0 ? null : offset
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position)
    if (bytesRead === 0) return
    if (position !== null) position += bytesRead
    yield { kind: 'bytes', bytes: buffer.subarray(0, bytesRead) }
  }
}

/** The position of the beginning of a line. */
export interface LinePosition {
  /** The number of the line, from 1. */
  readonly line: number
  readonly offset: number
}

/** Called for each line. The text has no newline; it is `null` if the line is too long. */
type LineVisitor = (text: string | null, line: number, offset: number) => void

const newline = 0x0a
const byteOrderMark = '\uFEFF'

/**
 * Splits bytes into lines. Keeps only the incomplete line at the end of the last chunk in memory.
 * Replaces invalid UTF-8.
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

  /** Visits every line that ends in this chunk. The caller may reuse the chunk afterwards. */
  push(chunk: Buffer): void {
    let start = 0
    for (;;) {
      const lastLine = chunk.indexOf(newline, start)
      if (lastLine < 0) break
      this.#finishLine(chunk, start, lastLine)
      start = lastLine + 1
    }
    this.#bufferRest(chunk.subarray(start))
  }

  end(): { readonly text: string | null; readonly position: LinePosition } | undefined {
    if (this.#openBytes === 0) return undefined
    const text = this.#isTooLong(this.#openBytes) ? null : this.#joinParts()
    return { text, position: this.position }
  }

  skipMissing(missingBytes: number): void {
    this.#offset += this.#openBytes + missingBytes
    this.#openBytes = 0
    this.#parts = []
  }

  #finishLine(chunk: Buffer, start: number, end: number): void {
    const size = this.#openBytes + end - start
    this.#visit(this.#decodeLine(chunk, start, end, size), this.#line, this.#offset)
    this.#line++
    this.#offset += size + 1
    this.#openBytes = 0
    this.#parts = []
  }

  #decodeLine(chunk: Buffer, start: number, end: number, size: number): string | null {
    if (this.#isTooLong(size)) return null
    if (this.#parts.length === 0)
      return this.#withoutByteOrderMark(chunk.toString('utf8', start, end))
    this.#parts.push(chunk.subarray(start, end))
    return this.#joinParts()
  }

  #bufferRest(rest: Buffer): void {
    if (rest.length === 0) return
    this.#openBytes += rest.length
    if (this.#isTooLong(this.#openBytes)) this.#parts = []
    else this.#parts.push(Buffer.from(rest))
  }

  #joinParts(): string {
    return this.#withoutByteOrderMark(Buffer.concat(this.#parts).toString('utf8'))
  }

  #withoutByteOrderMark(text: string): string {
    return this.#offset === 0 && text.startsWith(byteOrderMark) ? text.slice(1) : text
  }

  #isTooLong(bytes: number): boolean {
    return bytes > this.#maxLineBytes
  }
}
