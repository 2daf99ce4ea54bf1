/**
 * Reads compressed records (`….jsonl.zst`) in the "zstd seekable" format: independent frames,
 * followed by a seek table. Frames are decompressed one by one, because Node's zstd silently stops
 * after the first frame.
 */

import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline, Readable } from 'node:stream'
// Not a named import, because it would fail before the version check in a Node without zstd.
import * as zlib from 'node:zlib'
import { messageOf } from '../foundation/errors.ts'
import { openRegularFile } from '../foundation/regular-file.ts'

export const compressedSuffix = '.zst'

export const isCompressed = (path: string): boolean => path.endsWith(compressedSuffix)

/** Bytes of the record, or the reason why some of them are missing. */
export type RecordPart =
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  /** A frame that cannot be read. The frames after it can be read. */
  | { readonly kind: 'damage'; readonly reason: string; readonly missingBytes: number }
  /** The file ends inside a frame. */
  | { readonly kind: 'torn'; readonly reason: string; readonly missingBytes: number }

const frameMagic = 0xfd2fb528
/** The first of the 16 magic numbers that mark frames to be skipped by decoders. */
const skippableMagic = 0x184d2a50
const magicBytes = 4
const isSkippable = (magic: number): boolean => (magic & 0xfffffff0) >>> 0 === skippableMagic
const isFrameMagic = (magic: number): boolean => magic === frameMagic || isSkippable(magic)
export const seekTableMagic = 0x184d2a5e
export const seekFooterMagic = 0x8f92eab1
export const seekFooterBytes = 9
export const seekHeadBytes = 8
export const seekEntryBytes = 8

/** The maximum size of a frame header: magic, descriptor, window, dictionary, content size. */
const maxHeaderBytes = 18
const blockHeadBytes = 3
const checksumBytes = 4
/** The maximum size of a frame that is decompressed in memory. Larger frames are streamed. */
const maxBufferedBytes = 32 * 2 ** 20
const chunkBytes = 262_144

/** Yields the decompressed bytes from the offset `from`. Never throws because of the content. */
export async function* decompressFrames(
  file: FileHandle,
  from: number,
): AsyncGenerator<RecordPart, void> {
  const { size } = await file.stat()
  const entries = await readSeekTable(file, size)
  let offset = 0
  const parts = entries === null ? readFrames(file, size) : readListedFrames(file, entries, from)
  for await (const part of parts) {
    if (part.kind === 'skipped') offset += part.bytes
    else if (part.kind !== 'bytes') {
      offset += part.missingBytes
      yield part
    } else {
      const skipped = Math.max(0, Math.min(part.bytes.length, from - offset))
      offset += part.bytes.length
      if (skipped < part.bytes.length) yield { ...part, bytes: part.bytes.subarray(skipped) }
    }
  }
}

/**
 * Yields the bytes from a pipe, decompressed if necessary. Compressed input is first stored in an
 * unnamed temporary file, because frames must be read at their positions.
 */
export async function* readPipe(chunks: AsyncIterable<Buffer>): AsyncGenerator<RecordPart, void> {
  const rest = chunks[Symbol.asyncIterator]()
  let head = Buffer.alloc(0)
  for (let isLast = false; !isLast && head.length < magicBytes;) {
    const next = await rest.next()
    isLast = next.done === true
    if (next.done !== true) head = Buffer.concat([head, next.value])
  }
  const all = (async function* () {
    yield head
    yield* { [Symbol.asyncIterator]: () => rest }
  })()
  if (head.length >= magicBytes && isFrameMagic(head.readUInt32LE(0))) {
    const file = await openUnnamedFile()
    try {
      for await (const chunk of all) await file.appendFile(chunk)
      yield* decompressFrames(file, 0)
    } finally {
      await file.close()
    }
  } else for await (const bytes of all) yield { kind: 'bytes', bytes }
}

/** Opens a file without a name, which the system frees when it is closed or the process exits. */
async function openUnnamedFile(): Promise<FileHandle> {
  const folder = await mkdtemp(join(tmpdir(), 'tutti-piped-'))
  try {
    return await open(join(folder, 'record'), 'wx+', 0o600)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Whether the file ends with a seek table. A truncated file does not. */
export async function hasSeekTable(path: string): Promise<boolean> {
  const file = await openRegularFile(path)
  try {
    const { size } = await file.stat()
    return (await readSeekTable(file, size)) !== null
  } finally {
    await file.close()
  }
}

/** The compressed and uncompressed size of a frame, in bytes. */
interface SeekEntry {
  readonly packed: number
  readonly plain: number
}

/**
 * Reads the seek table. Returns `null` if there is none or if it does not match the file's size.
 */
async function readSeekTable(file: FileHandle, size: number): Promise<SeekEntry[] | null> {
  if (size < seekFooterBytes + seekHeadBytes) return null
  const footer = await readAt(file, size - seekFooterBytes, seekFooterBytes)
  if (footer.length < seekFooterBytes || footer.readUInt32LE(5) !== seekFooterMagic) return null
  const count = footer.readUInt32LE(0)
  const hasChecksums = (footer.readUInt8(4) & 0x80) !== 0
  const entryBytes = seekEntryBytes + (hasChecksums ? checksumBytes : 0)
  const tableBytes = count * entryBytes
  const tableAt = size - seekFooterBytes - tableBytes
  if (tableAt < seekHeadBytes) return null
  const table = await readAt(file, tableAt, tableBytes)
  if (table.length < tableBytes) return null
  const entries = Array.from({ length: count }, (_, at) => ({
    packed: table.readUInt32LE(at * entryBytes),
    plain: table.readUInt32LE(at * entryBytes + 4),
  }))
  const end = entries.reduce((sum, { packed }) => sum + packed, 0)
  return end === tableAt - seekHeadBytes ? entries : null
}

interface SkippedPart {
  readonly kind: 'skipped'
  readonly bytes: number
}

/** Reads the frames listed in the seek table, so that frames after a damaged frame are found. */
async function* readListedFrames(
  file: FileHandle,
  entries: readonly SeekEntry[],
  from: number,
): AsyncGenerator<RecordPart | SkippedPart, void> {
  let [at, offset] = [0, 0]
  for (const { packed, plain } of entries) {
    if (offset + plain <= from) yield { kind: 'skipped', bytes: plain }
    else yield* readFrame(file, at, { end: at + packed, contentBytes: plain })
    at += packed
    offset += plain
  }
}

/** Reads the frames without a seek table: each begins where the previous one ends. */
async function* readFrames(file: FileHandle, size: number): AsyncGenerator<RecordPart, void> {
  let at = 0
  while (at < size) {
    const frame = await measureFrame(file, at, size)
    if (frame.kind === 'frame') yield* readFrame(file, at, frame)
    else if (frame.kind !== 'skip') yield { ...frame, missingBytes: 0 }
    if (frame.kind === 'torn') return
    at = frame.end
  }
}

interface Frame {
  readonly kind: 'frame'
  readonly end: number
  /** The size of the content; `null` if the frame header does not contain it. */
  readonly contentBytes: number | null
}

type MeasuredFrame =
  | Frame
  | { readonly kind: 'skip'; readonly end: number }
  | { readonly kind: 'damage'; readonly reason: string; readonly end: number }
  | { readonly kind: 'torn'; readonly reason: string }

const tornFrame: MeasuredFrame = { kind: 'torn', reason: 'the compressed file ends within a frame' }

/** Finds the end of a frame from its block headers, without decompressing the blocks. */
async function measureFrame(file: FileHandle, at: number, size: number): Promise<MeasuredFrame> {
  const head = await readAt(file, at, maxHeaderBytes)
  if (head.length < seekHeadBytes) return tornFrame
  const magic = head.readUInt32LE(0)
  if (isSkippable(magic)) {
    const end = at + seekHeadBytes + head.readUInt32LE(4)
    return end > size ? tornFrame : { kind: 'skip', end }
  }
  if (magic !== frameMagic) {
    const reason = 'no compressed frame where one should begin'
    return { kind: 'damage', reason, end: size }
  }
  const { headBytes, contentBytes, hasChecksum } = parseFrameHeader(head)
  let next = at + headBytes
  for (let isLast = false; !isLast;) {
    const block = await readAt(file, next, blockHeadBytes)
    if (block.length < blockHeadBytes) return tornFrame
    const value = block.readUIntLE(0, blockHeadBytes)
    isLast = (value & 1) === 1
    // A run-length block stores its repeated byte only once.
    const isRepeated = ((value >> 1) & 3) === 1
    next += blockHeadBytes + (isRepeated ? 1 : value >> 3)
  }
  const end = next + (hasChecksum ? checksumBytes : 0)
  return end > size ? tornFrame : { kind: 'frame', end, contentBytes }
}

/** Parses a frame header (RFC 8878, section 3.1.1.1). */
function parseFrameHeader(head: Buffer): {
  readonly headBytes: number
  readonly contentBytes: number | null
  readonly hasChecksum: boolean
} {
  const descriptor = head.readUInt8(4)
  const sizeFlag = descriptor >> 6
  const isSingle = (descriptor & 0x20) !== 0
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][sizeFlag] ?? 0
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] ?? 0
  const sizeAt = 5 + (isSingle ? 0 : 1) + dictionaryBytes
  const known = sizeBytes > 0 && sizeAt + sizeBytes <= head.length
  return {
    headBytes: sizeAt + sizeBytes,
    contentBytes: known ? readContentSize(head, sizeAt, sizeBytes) : null,
    hasChecksum: (descriptor & 4) !== 0,
  }
}

function readContentSize(head: Buffer, at: number, bytes: number): number {
  if (bytes === 8) return Number(head.readBigUInt64LE(at))
  return head.readUIntLE(at, bytes) + (bytes === 2 ? 256 : 0)
}

/**
 * Yields the content of a frame. If the frame is damaged, yields the reason and, if known, the
 * number of missing bytes.
 */
async function* readFrame(
  file: FileHandle,
  at: number,
  { end, contentBytes }: Pick<Frame, 'end' | 'contentBytes'>,
): AsyncGenerator<RecordPart, void> {
  let bytes = 0
  let problem: string | null = null
  try {
    for await (const part of decompress(file, at, { end, contentBytes })) {
      bytes += part.length
      yield { kind: 'bytes', bytes: part }
    }
  } catch (error) {
    problem = messageOf(error)
  }
  const missingBytes = Math.max(0, (contentBytes ?? bytes) - bytes)
  if (problem === null && missingBytes > 0) problem = 'it holds less than it should'
  if (problem === null) return
  const size = missingBytes > 0 ? `; ${missingBytes} bytes of the record are missing` : ''
  const reason = `a compressed frame cannot be read: ${problem}${size}`
  yield { kind: 'damage', reason, missingBytes }
}

async function* decompress(
  file: FileHandle,
  at: number,
  { end, contentBytes }: Pick<Frame, 'end' | 'contentBytes'>,
): AsyncGenerator<Buffer, void> {
  const isSmall = contentBytes !== null && Math.max(contentBytes, end - at) <= maxBufferedBytes
  if (isSmall) {
    const packed = await readAt(file, at, end - at)
    yield zlib.zstdDecompressSync(packed, { maxOutputLength: maxBufferedBytes })
    return
  }
  const plain = zlib.createZstdDecompress()
  // Errors are ignored here, because the iteration below throws them.
  pipeline(Readable.from(readChunks(file, at, end)), plain, () => {})
  for await (const bytes of plain) yield bytes as Buffer
}

async function* readChunks(file: FileHandle, from: number, to: number): AsyncGenerator<Buffer> {
  for (let at = from; at < to; at += chunkBytes) {
    yield await readAt(file, at, Math.min(chunkBytes, to - at))
  }
}

/** Reads `length` bytes, or fewer at the end of the file. */
async function readAt(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length)
  let filled = 0
  while (filled < length) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, at + filled)
    if (bytesRead === 0) break
    filled += bytesRead
  }
  return buffer.subarray(0, filled)
}
