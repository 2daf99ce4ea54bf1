/** Detects whether a file was cut or replaced since it was read. It may have grown. */

import { errnoOf } from '../../foundation/errors.ts'
import { openRegularFile, statOf } from '../../foundation/regular-file.ts'
import type { LinePosition } from '../../checkpoint/reader.ts'

/** The number of bytes to compare at the beginning of the file and before the reached position. */
const comparedBytes = 1024

export class FileMark {
  readonly #path: string
  readonly #offset: number
  readonly #inode: number
  readonly #bytes: Buffer

  private constructor(path: string, offset: number, inode: number, bytes: Buffer) {
    this.#path = path
    this.#offset = offset
    this.#inode = inode
    this.#bytes = bytes
  }

  static async of(path: string, { offset }: Pick<LinePosition, 'offset'>): Promise<FileMark> {
    const bytes = await readEnds(path, offset)
    return new FileMark(path, offset, statOf(path)?.ino ?? 0, bytes)
  }

  /** Recognizes a file before it is read, by its first bytes. */
  static async ofBeginning(path: string): Promise<FileMark> {
    return await FileMark.of(path, { offset: Math.min(statOf(path)?.size ?? 0, comparedBytes) })
  }

  /** Resolves with `null` if the file is the same or does not exist any more. */
  async findChange(): Promise<'cut' | 'replaced' | null> {
    const stats = statOf(this.#path)
    if (stats === null) return null
    if (stats.ino !== this.#inode) return 'replaced'
    try {
      const bytes = await readEnds(this.#path, this.#offset)
      if (bytes.length < this.#bytes.length || stats.size < this.#offset) return 'cut'
      return bytes.equals(this.#bytes) ? null : 'replaced'
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return null
      throw error
    }
  }
}

async function readEnds(path: string, offset: number): Promise<Buffer> {
  await using file = await openRegularFile(path)
  const length = Math.min(comparedBytes, offset)
  const buffer = Buffer.alloc(2 * length)
  const first = await file.read(buffer, 0, length, 0)
  const last = await file.read(buffer, length, length, offset - length)
  return buffer.subarray(0, first.bytesRead + last.bytesRead)
}
