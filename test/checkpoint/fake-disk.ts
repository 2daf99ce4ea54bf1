/** A disk in memory whose results a test decides. */

import { systemFiles, type FileOperations } from '../../src/checkpoint/files.ts'

/** How many bytes the next write takes at most, or the error it gives. */
export type WriteResult = number | string

/** Writes everything unless `answer` limits it; with `holdSyncs` syncs wait for the test. */
export class FakeDisk implements FileOperations {
  readonly writes: number[] = []
  answer: () => WriteResult = () => Infinity
  syncAnswer: () => string | undefined = () => undefined
  holdSyncs = false
  syncsStarted = 0
  syncsUnderWay = 0
  maxSyncsUnderWay = 0
  isOpen = false
  /** Bytes that would survive a power loss. */
  syncedBytes = 0
  #content = Buffer.alloc(0)
  #held: (() => void)[] = []

  get text(): string {
    return this.#content.toString('utf8')
  }

  /** The content that a power loss now would leave. */
  get durableText(): string {
    return this.#content.toString('utf8', 0, this.syncedBytes)
  }

  open(): number {
    this.isOpen = true
    return 1000
  }

  write(_fd: number, bytes: Uint8Array, offset: number, length: number): number {
    const answer = this.answer()
    if (typeof answer === 'string') throw systemError(answer)
    const taken = Math.min(length, answer)
    this.writes.push(taken)
    this.#content = Buffer.concat([this.#content, bytes.subarray(offset, offset + taken)])
    return taken
  }

  async fdatasync(): Promise<void> {
    const covers = this.#content.length
    this.syncsStarted++
    this.syncsUnderWay++
    this.maxSyncsUnderWay = Math.max(this.maxSyncsUnderWay, this.syncsUnderWay)
    if (this.holdSyncs) await new Promise<void>((resolve) => this.#held.push(resolve))
    this.syncsUnderWay--
    const errno = this.syncAnswer()
    if (errno !== undefined) throw systemError(errno)
    this.syncedBytes = covers
  }

  /** Finishes the oldest held sync. */
  finishSync(): void {
    this.#held.shift()?.()
  }

  truncate(_fd: number, length: number): void {
    this.#content = this.#content.subarray(0, length)
  }

  close(): void {
    if (!this.isOpen) throw systemError('EBADF')
    this.isOpen = false
  }
}

/** A real file system on which every write fails as on a full disk, while `isFull` is set. */
export function fullDevice(): FileOperations & { isFull: boolean } {
  const full = systemFiles.open('/dev/full', 1, 0)
  const disk = {
    ...systemFiles,
    isFull: true,
    write: (fd: number, bytes: Uint8Array, offset: number, length: number) =>
      systemFiles.write(disk.isFull ? full : fd, bytes, offset, length),
    close(fd: number) {
      systemFiles.close(full)
      systemFiles.close(fd)
    },
  }
  return disk
}

function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: fake`), { code })
}
