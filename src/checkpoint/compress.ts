/** Writes a compressed copy of a record, in frames of whole lines followed by a seek table. */

import type { FileHandle } from 'node:fs/promises'
import { constants, crc32, zstdCompressSync } from 'node:zlib'
import { CheckpointError } from '../foundation/errors.ts'
import { openRegularFile } from '../foundation/regular-file.ts'
import {
  compressedSuffix,
  decompressFrames,
  seekEntryBytes,
  seekFooterBytes,
  seekFooterMagic,
  seekHeadBytes,
  seekTableMagic,
} from './compressed.ts'
import { writeCopy } from './files.ts'

export interface CompressOptions {
  /** The approximate number of uncompressed bytes per frame. Default 1 MiB. */
  readonly frameBytes?: number
  readonly signal?: AbortSignal
  readonly onRead?: (bytes: number, path: string) => void
}

export interface CompressedRecord {
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
