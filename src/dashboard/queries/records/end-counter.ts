/**
 * Counts the ended tasks of a record that has no counts at its end, for example because the run
 * continues.
 */

import { closeSync, fstatSync, readSync } from 'node:fs'
import { openRegularFileSync } from '../../../foundation/regular-file.ts'
import type { RecordsView } from '../../protocol.ts'

export type TaskCounts = Pick<RecordsView['records'][number], 'done' | 'failed' | 'canceled'>

interface CountedFile {
  readonly inode: number
  /** The lines before this byte are counted. */
  offset: number
  readonly counts: { done: number; failed: number; canceled: number }
}

const chunkBytes = 4 * 2 ** 20
/** The maximum number of bytes per listing. A large record is counted in several listings. */
const maxBytes = 64 * 2 ** 20
const maxFiles = 1000

/** Matches lines of terminal events by their beginning. `eventLine` defines its form. */
const endPattern =
  /^\{"section":"event","trace_id":"\w*","span_id":"\w*","name":"Task(Completed|Failed|Canceled)"/gm
const keys = { Completed: 'done', Failed: 'failed', Canceled: 'canceled' } as const

export class EndCounter {
  readonly #files = new Map<string, CountedFile>()
  #bytesLeft = maxBytes

  /** Call this before the files of a listing are counted. Counting continues where it had ended. */
  startListing(): void {
    this.#bytesLeft = maxBytes
    if (this.#files.size > maxFiles) this.#files.clear()
  }

  /** Returns `null` until the whole file is counted. Throws if it cannot be read. */
  count(path: string): TaskCounts | null {
    const fd = openRegularFileSync(path)
    try {
      const { ino: inode, size } = fstatSync(fd)
      const known = this.#files.get(path)
      const isSame = known !== undefined && known.inode === inode && known.offset <= size
      const counts = { done: 0, failed: 0, canceled: 0 }
      const file = isSame ? known : { inode, offset: 0, counts }
      this.#files.set(path, file)
      return this.#countRest(fd, file) ? { ...file.counts } : null
    } finally {
      closeSync(fd)
    }
  }

  /** Returns whether the end of the file was reached. */
  #countRest(fd: number, file: CountedFile): boolean {
    const bytes = Buffer.allocUnsafe(chunkBytes)
    while (this.#bytesLeft > 0) {
      const length = readSync(fd, bytes, 0, chunkBytes, file.offset)
      const end = bytes.subarray(0, length).lastIndexOf(0x0a) + 1
      if (end > 0) addEnds(file.counts, bytes.toString('latin1', 0, end))
      this.#bytesLeft -= length
      if (length < chunkBytes) {
        file.offset += end
        return true
      }
      // Skips a line that is longer than a chunk.
      file.offset += end === 0 ? length : end
    }
    return false
  }
}

function addEnds(counts: CountedFile['counts'], text: string): void {
  for (const [, kind] of text.matchAll(endPattern)) counts[keys[kind as keyof typeof keys]]++
}
