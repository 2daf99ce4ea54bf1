/** A small kernel file that is read repeatedly through one descriptor. It parses nothing. */

import { closeSync, openSync, readSync } from 'node:fs'

/** A larger file is not one of the expected kernel files. */
const maxFileLength = 4 * 1024 * 1024

/**
 * Reads from the start at every call, without opening the file again. Reads are synchronous: the
 * kernel produces these texts in microseconds, faster than the thread pool would respond. `null` if
 * the file cannot be read.
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

  /** At most `bytes` from the start, if only the first lines of a long file are needed. */
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
    if (this.#buffer.length >= maxFileLength) return false
    this.#buffer = Buffer.concat([this.#buffer], this.#buffer.length * 2)
    return true
  }
}
