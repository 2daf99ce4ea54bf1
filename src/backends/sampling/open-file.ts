/** A small kernel file that is read again and again through one descriptor. It parses nothing. */

import { closeSync, openSync, readSync } from 'node:fs'

/** Above this a kernel file is not what we took it for. */
const longestFile = 4 * 1024 * 1024

/**
 * Reads from the start at every call, without opening anew. Reads are synchronous: the kernel makes
 * these texts in microseconds, less than a trip to the thread pool. What cannot be read is `null`.
 */
export class OpenFile {
  #descriptor: number | undefined
  #buffer = Buffer.allocUnsafeSlow(8192)

  constructor(path: string) {
    try {
      this.#descriptor = openSync(path, 'r')
    } catch {
      this.#descriptor = undefined
    }
  }

  /** The whole text. */
  read(): string | null {
    return this.#attempt((descriptor) => {
      let length = 0
      for (;;) {
        if (length === this.#buffer.length && !this.#grow()) return null
        const got = readSync(descriptor, this.#buffer, length, this.#buffer.length - length, length)
        if (got === 0) return this.#buffer.toString('latin1', 0, length)
        length += got
      }
    })
  }

  /** At most `bytes` from the start, for who needs the first lines of a long file. */
  readHead(bytes: number): string | null {
    return this.#attempt((descriptor) =>
      this.#buffer.toString('latin1', 0, readSync(descriptor, this.#buffer, 0, bytes, 0)),
    )
  }

  close(): void {
    if (this.#descriptor === undefined) return
    closeSync(this.#descriptor)
    this.#descriptor = undefined
  }

  #attempt(read: (descriptor: number) => string | null): string | null {
    if (this.#descriptor === undefined) return null
    try {
      return read(this.#descriptor)
    } catch {
      return null
    }
  }

  #grow(): boolean {
    if (this.#buffer.length >= longestFile) return false
    this.#buffer = Buffer.concat([this.#buffer], this.#buffer.length * 2)
    return true
  }
}
