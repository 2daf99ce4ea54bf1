/**
 * A store for bytes that are only appended and read. Holds a limited number of chunks in memory,
 * and the others in a temporary file without a name. If the file cannot be written, all chunks stay
 * in memory.
 */

import { closeSync, constants, readSync, unlinkSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemFiles } from '../../checkpoint/files.ts'
import { newUuid } from '../../foundation/ids.ts'

export const spillChunkBytes = 65_536
/** The default number of chunks in memory. Runs of up to about 16,000 tasks then need no file. */
const defaultChunksInMemory = 32

const openFiles = new FinalizationRegistry<number>((fd) => closeSync(fd))

export class SpillFile {
  /** The chunks that are not in the file, and `null` for those that are. */
  readonly #chunks: (Buffer | null)[] = []
  #chunk = Buffer.allocUnsafeSlow(spillChunkBytes)
  #usedBytes = 0
  #fd: number | null = null
  #bytesInFile = 0
  /** The chunk that was last read from the file, and its index. */
  #cache: { readonly index: number; readonly bytes: Buffer } | null = null

  readonly #chunksInMemory: number

  constructor(chunksInMemory = defaultChunksInMemory) {
    this.#chunksInMemory = chunksInMemory
  }

  get size(): number {
    return this.#chunks.length * spillChunkBytes + this.#usedBytes
  }

  get bytesInFile(): number {
    return this.#bytesInFile
  }

  /** Returns the position of the bytes, for `read`. */
  append(bytes: Uint8Array): number {
    const position = this.size
    let from = 0
    while (from < bytes.length) {
      const part = Math.min(bytes.length - from, spillChunkBytes - this.#usedBytes)
      this.#chunk.set(
        part === bytes.length ? bytes : bytes.subarray(from, from + part),
        this.#usedBytes,
      )
      this.#usedBytes += part
      from += part
      if (this.#usedBytes === spillChunkBytes) this.#seal()
    }
    return position
  }

  /** Returns a copy, or a view that is valid until the next `append` or `read`. */
  read(position: number, length: number): Buffer {
    const index = Math.floor(position / spillChunkBytes)
    const from = position - index * spillChunkBytes
    if (from + length <= spillChunkBytes) return this.#chunkAt(index).subarray(from, from + length)
    const parts = [this.#chunkAt(index).subarray(from)]
    let bytesLeft = length - (spillChunkBytes - from)
    for (let next = index + 1; bytesLeft > 0; next++) {
      parts.push(Buffer.from(this.#chunkAt(next).subarray(0, bytesLeft)))
      bytesLeft -= spillChunkBytes
    }
    return Buffer.concat(parts)
  }

  #chunkAt(index: number): Buffer {
    if (index === this.#chunks.length) return this.#chunk
    const chunk = this.#chunks[index]
    if (chunk instanceof Buffer) return chunk
    if (this.#cache?.index === index) return this.#cache.bytes
    const bytes = Buffer.allocUnsafeSlow(spillChunkBytes)
    let done = 0
    while (done < spillChunkBytes) {
      const at = this.#offsetOf(index) + done
      const count = readSync(this.#fd ?? -1, bytes, done, spillChunkBytes - done, at)
      if (count === 0) throw new RangeError(`the temporary file ends before chunk ${index}`)
      done += count
    }
    this.#cache = { index, bytes }
    return bytes
  }

  #seal(): void {
    const index = this.#chunks.length
    const isWritten = index >= this.#chunksInMemory && this.#write(index)
    this.#chunks.push(isWritten ? null : this.#chunk)
    if (!isWritten) this.#chunk = Buffer.allocUnsafeSlow(spillChunkBytes)
    this.#usedBytes = 0
  }

  #write(index: number): boolean {
    try {
      this.#fd ??= this.#openFile()
      let done = 0
      while (done < spillChunkBytes) {
        const at = this.#offsetOf(index) + done
        done += writeSync(this.#fd, this.#chunk, done, spillChunkBytes - done, at)
      }
      this.#bytesInFile += spillChunkBytes
      return true
    } catch {
      // The write has failed, for example because the disk is full. The chunk stays in memory.
      return false
    }
  }

  #offsetOf(index: number): number {
    return (index - this.#chunksInMemory) * spillChunkBytes
  }

  /** Opens a file that no other process can read: it is private and loses its name. */
  #openFile(): number {
    const path = join(tmpdir(), `tutti-${newUuid()}.tmp`)
    const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR } = constants
    const fd = systemFiles.open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR, 0o600)
    unlinkSync(path)
    openFiles.register(this, fd)
    return fd
  }
}
