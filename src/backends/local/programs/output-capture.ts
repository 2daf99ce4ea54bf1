/** Where a program's output goes: into files, or into memory that keeps its head and tail. */

import { closeSync, constants, fstatSync, openSync, type Stats } from 'node:fs'
import { errnoOf, withoutStack } from '../../../foundation/errors.ts'
import { OutputFileError } from '../../../foundation/task-errors.ts'
import { leftOutMark } from '../../captured-text.ts'
import {
  type CaptureBounds,
  type CapturedOutput,
  isTransient,
  type ProgramRequest,
} from './protocol.ts'

/** Accepts any number of bytes, but keeps only as many as the bounds allow. */
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

  /** The number of bytes received so far. */
  get total(): number {
    return this.#total
  }

  get isTruncated(): boolean {
    return this.#total > this.#bounds.headBytes + this.#bounds.tailBytes
  }

  /** Copies the bytes that it keeps, because the caller reuses the buffer. */
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

  /** The output decoded as UTF-8, with a marker line in place of bytes that were left out. */
  text(): string {
    if (this.#total === 0) return ''
    const head = Buffer.concat(this.#head)
    const tail = this.#orderedTail()
    const omitted = this.#total - head.length - tail.length
    if (omitted === 0) return Buffer.concat([head, tail]).toString()
    const [whole, rest] = [withoutCutEnd(head), withoutCutStart(tail)]
    const leftOut = this.#total - whole.length - rest.length
    return `${whole.toString()}${leftOutMark(leftOut)}${rest.toString()}`
  }

  #pushTail(bytes: Uint8Array): void {
    const size = this.#bounds.tailBytes
    this.#tail ??= Buffer.allocUnsafe(size)
    const kept = bytes.length > size ? bytes.subarray(bytes.length - size) : bytes
    // Positions count all bytes, so skipped bytes also advance the ring.
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

/** Removes an incomplete character at the end. */
function withoutCutEnd(bytes: Buffer): Buffer {
  let start = bytes.length - 1
  while (start > bytes.length - 4 && isContinuation(bytes[start])) start--
  const lead = bytes[start] ?? 0
  const width = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1
  return bytes.length - start < width ? bytes.subarray(0, start) : bytes
}

/** Removes an incomplete character at the start. */
function withoutCutStart(bytes: Buffer): Buffer {
  let start = 0
  while (start < 3 && isContinuation(bytes[start])) start++
  return bytes.subarray(start)
}

export interface Outputs {
  readonly plan: Readonly<Record<'stdout' | 'stderr', number | OutputCapture>>
  /** Descriptors to close once the program has them. */
  readonly files: ReadonlySet<number>
  captured(): CapturedOutput
}

/**
 * Opens the outputs, never waiting for a FIFO's reader. If both name the same file, they share one
 * descriptor, so writes keep their order. Throws an `OutputFileError`, or the system's error for
 * lack of resources.
 */
export function openOutputs(
  { stdoutFile, stderrFile }: Pick<ProgramRequest, 'stdoutFile' | 'stderrFile'>,
  bounds: CaptureBounds,
): Outputs {
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
      stdout: textOf(stdout),
      stderr: textOf(stderr),
      ...(isTruncated(stdout) ? { stdoutTruncated: true } : {}),
      ...(isTruncated(stderr) ? { stderrTruncated: true } : {}),
    }),
  }
}

const textOf = (output: number | OutputCapture): string =>
  typeof output === 'number' ? '' : output.text()

const isTruncated = (output: number | OutputCapture): boolean =>
  typeof output !== 'number' && output.isTruncated

const { O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_NONBLOCK, O_NOCTTY } = constants
const toWrite = O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY
/** The major number of /dev/null, /dev/zero and /dev/full, whose writes never block. */
const memoryDevices = 1

/** Opens without blocking and then examines the descriptor: the path may change in between. */
function openOutput(path: string): number {
  let file: number
  try {
    file = openSync(path, toWrite | O_NONBLOCK)
  } catch (error) {
    throw explain(path, error)
  }
  const stats = fstatSync(file)
  if (stats.isFile() || isMemoryDevice(stats)) return file
  try {
    if (stats.isFIFO()) return reopenFifo(path)
  } finally {
    closeSync(file)
  }
  throw refused(`${path} is a device`, 'Name a file, a FIFO with a reader, or /dev/null.')
}

const isMemoryDevice = (stats: Stats): boolean =>
  stats.isCharacterDevice() && stats.rdev >> 8 === memoryDevices

/**
 * Reopens a FIFO in blocking mode, which programs expect. This open does not block, because the
 * guard is a reader too.
 */
function reopenFifo(path: string): number {
  const guard = openSync(path, O_RDWR | O_NONBLOCK)
  try {
    return openSync(path, O_WRONLY)
  } finally {
    closeSync(guard)
  }
}

function explain(path: string, error: unknown): unknown {
  const errno = errnoOf(error)
  if (isTransient(errno)) return error
  switch (errno) {
    case 'ENXIO':
      return refused(`${path} has no reader`, 'Open the FIFO for reading first, or name a file.')
    case 'EISDIR':
      return refused(`${path} is a folder`, 'Name a file in it.')
    case 'ENOENT':
    case 'ENOTDIR':
      return refused(`the folder of ${path} does not exist`, 'Make the folder first.')
    default:
      return refused(`${path} cannot be opened for writing: ${errno}`)
  }
}

const refused = (message: string, hint?: string): OutputFileError =>
  withoutStack(
    () => new OutputFileError(`captureStdio: ${message}`, hint === undefined ? {} : { hint }),
  )
