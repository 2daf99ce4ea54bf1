/** The port over the calls that put bytes on file; what a test replaces to make a disk fail. */

import { closeSync, fdatasync, openSync, writeSync } from 'node:fs'
import { promisify } from 'node:util'
import { errnoOf } from '../foundation/errors.ts'

/** Each call is one system call and throws, or rejects with, the system's error. */
export interface FileOperations {
  open(path: string, flags: number, mode: number): number
  /** How many of the `length` bytes from `offset` were written; may be fewer. */
  write(fd: number, bytes: Uint8Array, offset: number, length: number): number
  fdatasync(fd: number): Promise<void>
  close(fd: number): void
}

export const nodeFiles: FileOperations = {
  open: openSync,
  write: writeSync,
  fdatasync: promisify(fdatasync),
  close: closeSync,
}

/** Calls in a row that an interrupted write is repeated before it counts as failed. */
const mostRepeats = 100

/** Writes some of the bytes, at least one, or throws the system's error. */
export function writeSome(
  files: FileOperations,
  fd: number,
  slice: { readonly bytes: Uint8Array; readonly offset: number; readonly length: number },
): number {
  for (let repeats = 0; repeats < mostRepeats; repeats++) {
    try {
      const written = files.write(fd, slice.bytes, slice.offset, slice.length)
      if (written > 0) return written
    } catch (error) {
      const errno = errnoOf(error)
      if (errno !== 'EINTR' && errno !== 'EAGAIN') throw error
    }
  }
  throw Object.assign(new Error('no byte was taken'), { code: 'EAGAIN' })
}
