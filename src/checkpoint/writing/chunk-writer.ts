/**
 * Writes frames of the ring to the file, in chunks. Used by the writer thread and the main thread.
 */

import type { DerivedIds } from '../../events/derived-ids.ts'
import { type FileOperations, writeSome } from '../files.ts'
import { LineFormatter } from './line-formatter.ts'
import { lockStates, type Progress, type SharedRecord } from './shared-record.ts'

export class ChunkWriter {
  readonly #record: SharedRecord
  readonly #formatter: LineFormatter
  readonly #files: Pick<FileOperations, 'write'>
  readonly #fd: number

  constructor(
    record: SharedRecord,
    ids: DerivedIds,
    files: Pick<FileOperations, 'write'>,
    fd: number,
  ) {
    this.#record = record
    this.#formatter = new LineFormatter(record, ids)
    this.#files = files
    this.#fd = fd
  }

  /**
   * Called by the main thread, which holds the lock. Writes a chunk. Returns `false` if no frame
   * waits. If the system call fails, throws its error and leaves the progress unchanged.
   */
  writeHeld(): boolean {
    const before = this.#record.progress
    const length = this.#formatter.format(before.tail, before.skip, this.#record.head)
    if (length === 0) return false
    const written = this.#write(length)
    this.#commitHeld(this.#progressAfter(before, written))
    return true
  }

  /**
   * Called by the writer thread. Takes the lock, and writes a chunk. Returns whether it has written
   * one. Writes nothing if the main thread takes the lock before the system call begins.
   */
  writeNext(): { readonly isWritten: boolean; readonly isFull: boolean } {
    const record = this.#record
    const free = record.lock
    if (record.lockState !== lockStates.free) return idle
    if (!record.tryLock(free, lockStates.formatting)) return idle
    const before = record.progress
    const length = this.#formatLocked(before)
    const formatting = record.lock
    if (!isIn(formatting, lockStates.formatting)) return idle
    const next = length === 0 ? lockStates.free : lockStates.writing
    if (!record.tryLock(formatting, next)) return idle
    if (length > 0) return this.#writeLocked(before, length)
    record.notifyLock()
    return idle
  }

  /** Returns the chunk's length; 0 if the main thread took the lock and overwrote the frames. */
  #formatLocked(before: Progress): number {
    try {
      return this.#formatter.format(before.tail, before.skip, this.#record.head)
    } catch (error) {
      if (this.#record.lockState === lockStates.formatting) throw error
      return 0
    }
  }

  #writeLocked(before: Progress, length: number): ReturnType<ChunkWriter['writeNext']> {
    const record = this.#record
    const writing = record.lock
    try {
      const written = this.#write(length)
      record.commit(writing, lockStates.free, this.#progressAfter(before, written))
    } catch (error) {
      const { code } = error as { code?: unknown }
      record.errno = typeof code === 'string' ? code : 'unknown'
      record.tryLock(writing, lockStates.failed)
    }
    record.notifyLock()
    return { isWritten: true, isFull: length > fullBytes }
  }

  /** Counts bytes that the writer thread wrote, but could not report before it died. */
  countWritten(bytes: number): void {
    while (this.#record.bytesWritten < bytes) {
      const before = this.#record.progress
      const length = this.#formatter.format(before.tail, before.skip, this.#record.head)
      if (length === 0) return
      const countedBytes = Math.min(length, bytes - before.bytes)
      this.#commitHeld(this.#progressAfter(before, countedBytes))
    }
  }

  /** Counts a line, or a part of a line, that the main thread wrote without the ring. */
  countDirect(bytes: number, lines: number): void {
    const before = this.#record.progress
    this.#commitHeld({ ...before, lines: before.lines + lines, bytes: before.bytes + bytes })
  }

  /** Removes the first frame. Returns `false` if there is none. */
  dropFirst(): boolean {
    const before = this.#record.progress
    const next = this.#formatter.endOfFirst(before.tail, this.#record.head)
    if (next !== null) this.#commitHeld({ ...before, tail: next, skip: 0 })
    return next !== null
  }

  /** If the first line is partly in the file, removes its frame and returns the other part. */
  takeHalfWritten(): Buffer | null {
    const before = this.#record.progress
    if (before.skip === 0) return null
    const first = this.#formatter.readFirst(before.tail, before.skip, this.#record.head)
    if (first === null) return null
    this.#commitHeld({ ...before, tail: first.next, skip: 0 })
    return first.rest
  }

  #commitHeld(progress: Progress): void {
    this.#record.commit(this.#record.lock, lockStates.main, progress)
  }

  #write(length: number): number {
    return writeSome(this.#files, this.#fd, { bytes: this.#formatter.bytes, offset: 0, length })
  }

  #progressAfter(before: Progress, written: number): Progress {
    const { tail, skip, lines } = this.#formatter.advance(before.tail, before.skip, written)
    return { tail, skip, lines: before.lines + lines, bytes: before.bytes + written }
  }
}

/** A chunk of at least this size indicates that more frames are waiting. */
const fullBytes = 60_000
const idle = { isWritten: false, isFull: false } as const
const isIn = (lock: number, state: number): boolean => (lock & 7) === state
