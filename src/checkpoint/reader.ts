/** Reads a checkpoint as a stream, live or left by a crash. No content makes it throw. */

import { constants } from 'node:buffer'
import { open, type FileHandle } from 'node:fs/promises'
import { expectInteger } from '../foundation/options.ts'
import { checkpointFailure } from './checkpoint-failure.ts'
import type { CheckpointLine } from './format.ts'
import { LineSplitter, type LinePlace } from './line-splitter.ts'
import { parseLine } from './parse-line.ts'

/** A line that was skipped: its number, the byte at which it begins, and why. */
export interface BadLine extends LinePlace {
  readonly reason: string
}

export interface ReadOptions {
  /** A longer line is skipped as bad and never held in memory. Default 64 MiB. */
  readonly maxLineBytes?: number
  /** Ends the reading with its reason. */
  readonly signal?: AbortSignal
  /** Called for each bad line, in order; not for the torn end. */
  readonly onBadLine?: (bad: BadLine) => void
}

export interface ReadSummary {
  /** Good lines, all of which were yielded. */
  readonly lines: number
  readonly bad: number
  /** Lines of sections that are not known. */
  readonly unknown: number
  /** The end of the file when a crash, or a writer at work, left it in the middle of a line. */
  readonly torn: BadLine | null
  readonly bytes: number
}

const readBytes = 262_144

/** Yields the good lines in order. Leaving the loop closes the file. */
export async function* readCheckpoint(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<CheckpointLine, ReadSummary> {
  const tally = new Tally(options)
  for await (const batch of tally.read(path)) yield* batch
  return tally.summary()
}

/** The same lines in arrays, one for each piece read, which saves an await per line. */
export async function* readBatches(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<readonly CheckpointLine[], ReadSummary> {
  const tally = new Tally(options)
  for await (const batch of tally.read(path)) yield batch
  return tally.summary()
}

/** One reading of one file, and its counts. */
class Tally {
  readonly #options: ReadOptions
  readonly #splitter: LineSplitter
  #batch: CheckpointLine[] = []
  #lines = 0
  #bad = 0
  #unknown = 0
  #torn: BadLine | null = null
  #bytes = 0

  constructor(options: ReadOptions) {
    const { maxLineBytes = 64 * 2 ** 20 } = options
    const range = { min: 1, max: constants.MAX_STRING_LENGTH }
    this.#options = options
    this.#splitter = new LineSplitter(
      expectInteger('maxLineBytes', maxLineBytes, range),
      (text, line, offset) => this.#take(text, { line, offset }, false),
    )
  }

  async *read(path: string): AsyncGenerator<readonly CheckpointLine[], void> {
    const file = await openFile(path)
    try {
      const buffer = Buffer.allocUnsafeSlow(readBytes)
      for (;;) {
        this.#options.signal?.throwIfAborted()
        const size = await readSome(file, buffer, path)
        if (size === 0) break
        this.#bytes += size
        this.#splitter.push(buffer.subarray(0, size))
        if (this.#batch.length > 0) yield this.#takeBatch()
      }
      const tail = this.#splitter.end()
      if (tail !== undefined) this.#take(tail.text, tail.place, true)
      if (this.#batch.length > 0) yield this.#takeBatch()
    } finally {
      await file.close()
    }
  }

  summary(): ReadSummary {
    return {
      lines: this.#lines,
      bad: this.#bad,
      unknown: this.#unknown,
      torn: this.#torn,
      bytes: this.#bytes,
    }
  }

  #take(text: string | null, place: LinePlace, isTail: boolean): void {
    const parsed = text === null ? tooLong : parseLine(text)
    if (parsed.kind === 'line') {
      this.#batch.push(parsed.line)
      this.#lines++
    } else if (parsed.kind === 'unknown') {
      this.#unknown++
    } else if (parsed.kind === 'broken' && isTail) {
      this.#torn = { ...place, reason: parsed.reason }
    } else if (parsed.kind !== 'empty') {
      this.#bad++
      this.#options.onBadLine?.({ ...place, reason: parsed.reason })
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
    return await open(path, 'r')
  } catch (error) {
    throw checkpointFailure('read the checkpoint', path, error)
  }
}

async function readSome(file: FileHandle, buffer: Buffer, path: string): Promise<number> {
  try {
    return (await file.read(buffer, 0, buffer.length, null)).bytesRead
  } catch (error) {
    throw checkpointFailure('read the checkpoint', path, error)
  }
}
