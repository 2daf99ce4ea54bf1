/**
 * Reads and writes compressed records (`….jsonl.zst`) in the "zstd seekable" format: independent
 * frames of whole lines, followed by a seek table. Frames are decompressed one by one, because
 * Node's zstd silently stops after the first frame.
 */

import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline, Readable } from 'node:stream'
import * as zlib from 'node:zlib'
import { constants, crc32, zstdCompressSync } from 'node:zlib'
import { CheckpointError, errnoOf, messageOf } from '../foundation/errors.ts'
import { openRegularFile } from '../foundation/regular-file.ts'
import { writeCopy } from './files.ts'

export const compressedSuffix = '.zst'

export const isCompressed = (path: string): boolean => path.endsWith(compressedSuffix)

/** Bytes of the record, or the reason why some of them are missing. */
export type RecordPart =
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  /** A frame that cannot be read. With a seek table, the frames after it can be read. */
  | { readonly kind: 'damage'; readonly reason: string; readonly missingBytes: number }
  /** The file ends inside a frame. */
  | { readonly kind: 'torn'; readonly reason: string; readonly missingBytes: number }

const frameMagic = 0xfd2fb528
/** The first of the 16 magic numbers that mark frames to be skipped by decoders. */
const skippableMagic = 0x184d2a50
const magicBytes = 4
const isSkippable = (magic: number): boolean => (magic & 0xfffffff0) >>> 0 === skippableMagic
const isFrameMagic = (magic: number): boolean => magic === frameMagic || isSkippable(magic)
const seekTableMagic = 0x184d2a5e
const seekFooterMagic = 0x8f92eab1
const seekFooterBytes = 9
const seekHeadBytes = 8
const seekEntryBytes = 8

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

/**
 * Opens a file that has no name, so that the system frees it when it is closed or the process
 * exits.
 */
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

/** Reads the seek table. Returns `null` if there is none or it does not match the file's size. */
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
    else yield* readFrame(file, at, { packed, plain })
    at += packed
    offset += plain
  }
}

/**
 * Reads frames until the end of the file, for a file without a seek table. The end of a frame is
 * known only after it was decompressed, so nothing after a damaged frame is found.
 */
async function* readFrames(file: FileHandle, size: number): AsyncGenerator<RecordPart, void> {
  for (let at = 0; at < size;) {
    const plain = inflate(file, at, size)
    try {
      for await (const bytes of plain) yield { kind: 'bytes', bytes: bytes as Buffer }
    } catch (error) {
      const isTorn = errnoOf(error) === 'Z_BUF_ERROR'
      yield isTorn
        ? { kind: 'torn', reason: 'the compressed file ends within a frame', missingBytes: 0 }
        : { kind: 'damage', reason: unreadableFrameText(messageOf(error)), missingBytes: 0 }
      return
    }
    at += plain.bytesWritten
  }
}

/**
 * Yields the content of a listed frame. A damaged frame yields its readable part and the damage.
 */
async function* readFrame(
  file: FileHandle,
  at: number,
  { packed, plain }: SeekEntry,
): AsyncGenerator<RecordPart, void> {
  let bytes = 0
  let problem: string | null = null
  try {
    for await (const part of decompress(file, at, { packed, plain })) {
      bytes += part.length
      yield { kind: 'bytes', bytes: part }
    }
  } catch (error) {
    problem = messageOf(error)
  }
  const missingBytes = Math.max(0, plain - bytes)
  if (problem === null && missingBytes > 0) problem = 'it holds less than it should'
  if (problem === null) return
  const size = missingBytes > 0 ? `; ${missingBytes} bytes of the record are missing` : ''
  yield { kind: 'damage', reason: unreadableFrameText(`${problem}${size}`), missingBytes }
}

const unreadableFrameText = (why: string): string => `a compressed frame cannot be read: ${why}`

async function* decompress(
  file: FileHandle,
  at: number,
  { packed, plain }: SeekEntry,
): AsyncGenerator<Buffer, void> {
  if (Math.max(packed, plain) > maxBufferedBytes) yield* inflate(file, at, at + packed)
  else {
    const frame = await readAt(file, at, packed)
    yield zlib.zstdDecompressSync(frame, { maxOutputLength: maxBufferedBytes })
  }
}

/** Decompresses one frame, which begins at `from` and ends at or before `to`. */
function inflate(file: FileHandle, from: number, to: number): zlib.ZstdDecompress {
  const plain = zlib.createZstdDecompress()
  // Errors are ignored here, because the reader of the stream gets them.
  pipeline(Readable.from(readChunks(file, from, to)), plain, () => {})
  return plain
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

interface CompressOptions {
  /** The approximate number of uncompressed bytes per frame. Default 1 MiB. */
  readonly frameBytes?: number
  readonly signal?: AbortSignal
  readonly onRead?: (bytes: number, path: string) => void
}

interface CompressedRecord {
  readonly path: string
  readonly bytes: number
  readonly originalBytes: number
  readonly frames: number
}

/** A frame of this length may end inside a line. Shorter frames end after a newline. */
const maxFrameLength = 32 * 2 ** 20
const newline = 0x0a

/**
 * Compresses a record into a new file next to it. The copy gets its final name only after it was
 * read back and compared. Never overwrites a file. Rejects with `CheckpointError`.
 */
export async function compressRecord(
  path: string,
  options: CompressOptions = {},
): Promise<CompressedRecord> {
  const target = `${path}${compressedSuffix}`
  return writeCopy({ action: 'compress the record', path, target }, async (packed) => {
    const source = await openRegularFile(path)
    try {
      const { crc, ...written } = await writeFrames(source, packed, { ...options, path })
      await verifyCopy(packed, { crc, ...written }, path)
      return { path: target, ...written }
    } finally {
      await source.close()
    }
  })
}

interface WrittenFrames {
  bytes: number
  originalBytes: number
  frames: number
  crc: number
}

async function writeFrames(
  source: FileHandle,
  packed: FileHandle,
  { frameBytes = 2 ** 20, signal, onRead, path }: CompressOptions & { readonly path: string },
): Promise<WrittenFrames> {
  const entries: number[] = []
  const written = { bytes: 0, originalBytes: 0, frames: 0, crc: 0 }
  for await (const part of splitIntoFrames(source, frameBytes)) {
    signal?.throwIfAborted()
    const frame = zstdCompressSync(part, { params: { [constants.ZSTD_c_checksumFlag]: 1 } })
    await packed.appendFile(frame)
    entries.push(frame.length, part.length)
    written.bytes += frame.length
    written.originalBytes += part.length
    written.frames++
    written.crc = crc32(part, written.crc)
    onRead?.(written.originalBytes, path)
  }
  const table = toSeekTable(entries)
  await packed.appendFile(table)
  written.bytes += table.length
  return written
}

/** Yields parts that end after a newline, except the last part and parts of a very long line. */
async function* splitIntoFrames(source: FileHandle, frameBytes: number): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0)
  const buffer = Buffer.allocUnsafeSlow(frameBytes)
  for (;;) {
    const { bytesRead } = await source.read(buffer, 0, buffer.length, null)
    if (bytesRead === 0) break
    const all = Buffer.concat([rest, buffer.subarray(0, bytesRead)])
    const end = all.length >= maxFrameLength ? all.length : all.lastIndexOf(newline) + 1
    const isEnough = end >= frameBytes / 2
    if (isEnough) yield all.subarray(0, end)
    rest = isEnough ? all.subarray(end) : all
  }
  if (rest.length > 0) yield rest
}

function toSeekTable(entries: readonly number[]): Buffer {
  const count = entries.length / 2
  const content = count * seekEntryBytes + seekFooterBytes
  const table = Buffer.alloc(seekHeadBytes + content)
  table.writeUInt32LE(seekTableMagic, 0)
  table.writeUInt32LE(content, 4)
  for (const [at, value] of entries.entries()) table.writeUInt32LE(value, seekHeadBytes + 4 * at)
  const footer = seekHeadBytes + count * seekEntryBytes
  table.writeUInt32LE(count, footer)
  table.writeUInt32LE(seekFooterMagic, footer + 5)
  return table
}

async function verifyCopy(packed: FileHandle, written: WrittenFrames, path: string): Promise<void> {
  let [bytes, crc] = [0, 0]
  for await (const part of decompressFrames(packed, 0)) {
    if (part.kind !== 'bytes') continue
    bytes += part.bytes.length
    crc = crc32(part.bytes, crc)
  }
  if (bytes === written.originalBytes && crc === written.crc) return
  throw new CheckpointError(`the compressed copy of ${path} differs from it`, { path })
}
