/**
 * Receives a program's output in files, or in memory. In memory, only its beginning and end are
 * kept.
 */

import { closeSync, constants, fstatSync, openSync, type Stats } from 'node:fs'
import { errnoOf, withoutStack } from '../../../foundation/errors.ts'
import { OutputFileError } from '../../../foundation/task-errors.ts'
import { omissionMark } from '../../captured-text.ts'
import {
  type CaptureBounds,
  type CapturedOutput,
  isResourceShortage,
  type ProgramRequest,
} from './protocol.ts'

/** Accepts any number of bytes, but keeps only the first and the last bytes. */
export class OutputCapture {
  readonly #bounds: CaptureBounds
  #head: Buffer[] = []
  #headBytes = 0
  /** A ring buffer, allocated when the head is full. */
  #tail: Buffer | undefined
  #tailAt = 0
  #total = 0

  constructor(bounds: CaptureBounds) {
    this.#bounds = bounds
  }

  get total(): number {
    return this.#total
  }

  get isTruncated(): boolean {
    return this.#total > this.#bounds.headBytes + this.#bounds.tailBytes
  }

  /** Adds bytes. The kept bytes are copied, because the caller reuses the buffer. */
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

  /** Returns the output as text, with a marker line in place of omitted bytes. */
  text(): string {
    if (this.#total === 0) return ''
    const head = Buffer.concat(this.#head)
    const tail = this.#orderedTail()
    const omitted = this.#total - head.length - tail.length
    if (omitted === 0) return Buffer.concat([head, tail]).toString()
    const [whole, rest] = [trimPartialEnd(head), trimPartialStart(tail)]
    const omittedBytes = this.#total - whole.length - rest.length
    return `${whole.toString()}${omissionMark(omittedBytes)}${rest.toString()}`
  }

  #pushTail(bytes: Uint8Array): void {
    const size = this.#bounds.tailBytes
    this.#tail ??= Buffer.allocUnsafe(size)
    const kept = bytes.length > size ? bytes.subarray(bytes.length - size) : bytes
    // The position counts all bytes, so skipped bytes also advance the ring.
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

function trimPartialEnd(bytes: Buffer): Buffer {
  let start = bytes.length - 1
  while (start > bytes.length - 4 && isContinuation(bytes[start])) start--
  const lead = bytes[start] ?? 0
  const width = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1
  return bytes.length - start < width ? bytes.subarray(0, start) : bytes
}

function trimPartialStart(bytes: Buffer): Buffer {
  let start = 0
  while (start < 3 && isContinuation(bytes[start])) start++
  return bytes.subarray(start)
}

export interface OpenedOutputs {
  readonly plan: Readonly<Record<'stdout' | 'stderr', number | OutputCapture>>
  /** The descriptors that the caller must close once the program has inherited them. */
  readonly files: ReadonlySet<number>
  captured(): CapturedOutput
}

/**
 * Opens the outputs of a program, without waiting for the reader of a FIFO. If both are the same
 * file, they share a descriptor, so that writes keep their order. Throws an `OutputFileError` or
 * the system's error.
 */
export function openOutputs(
  { stdoutFile, stderrFile }: Pick<ProgramRequest, 'stdoutFile' | 'stderrFile'>,
  bounds: CaptureBounds,
): OpenedOutputs {
  const stdout = stdoutFile === null ? new OutputCapture(bounds) : openOutput(stdoutFile)
  let stderr: number | OutputCapture
  try {
    if (stderrFile === null) stderr = new OutputCapture(bounds)
    else stderr = stderrFile === stdoutFile ? stdout : openOutput(stderrFile)
  } catch (error) {
    if (typeof stdout === 'number') closeSync(stdout)
    throw error
  }
  return {
    plan: { stdout, stderr },
    files: new Set([stdout, stderr].filter((output) => typeof output === 'number')),
    captured: () => ({
      stdout: capturedText(stdout),
      stderr: capturedText(stderr),
      ...(isTruncated(stdout) ? { stdoutTruncated: true } : {}),
      ...(isTruncated(stderr) ? { stderrTruncated: true } : {}),
    }),
  }
}

const capturedText = (output: number | OutputCapture): string =>
  typeof output === 'number' ? '' : output.text()

const isTruncated = (output: number | OutputCapture): boolean =>
  typeof output !== 'number' && output.isTruncated

const { O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_NONBLOCK, O_NOCTTY } = constants
const writeFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY
/** The major number of /dev/null, /dev/zero and /dev/full. Writes to them never block. */
const memoryDeviceMajor = 1

/**
 * Opens the file without blocking and then examines what was opened, because the path may change.
 */
function openOutput(path: string): number {
  let file: number
  try {
    file = openSync(path, writeFlags | O_NONBLOCK)
  } catch (error) {
    throw toOpenError(path, error)
  }
  const stats = fstatSync(file)
  if (stats.isFile() || isMemoryDevice(stats)) return file
  try {
    if (stats.isFIFO()) return reopenFifo(path)
  } finally {
    closeSync(file)
  }
  throw outputFileError(`${path} is a device`, 'Name a file, a FIFO with a reader, or /dev/null.')
}

const isMemoryDevice = (stats: Stats): boolean =>
  stats.isCharacterDevice() && stats.rdev >> 8 === memoryDeviceMajor

/** Reopens a FIFO in blocking mode, as programs expect. Does not wait, as `guard` is a reader. */
function reopenFifo(path: string): number {
  const guard = openSync(path, O_RDWR | O_NONBLOCK)
  try {
    return openSync(path, O_WRONLY)
  } finally {
    closeSync(guard)
  }
}

function toOpenError(path: string, error: unknown): unknown {
  const errno = errnoOf(error)
  if (isResourceShortage(errno)) return error
  switch (errno) {
    case 'ENXIO':
      return outputFileError(
        `${path} has no reader`,
        'Open the FIFO for reading first, or name a file.',
      )
    case 'EISDIR':
      return outputFileError(`${path} is a folder`, 'Name a file in it.')
    case 'ENOENT':
    case 'ENOTDIR':
      return outputFileError(`the folder of ${path} does not exist`, 'Make the folder first.')
    default:
      return outputFileError(`${path} cannot be opened for writing: ${errno}`)
  }
}

const outputFileError = (message: string, hint?: string): OutputFileError =>
  withoutStack(
    () => new OutputFileError(`captureStdio: ${message}`, hint === undefined ? {} : { hint }),
  )
