/** A file into which a program writes its output, read as far as it was written. */

import { closeSync, readSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { isRegularFile, openRegularFileSync } from '../../../foundation/regular-file.ts'

const chunkBytes = 65_536
/** How much of the text before the position is compared with that of the last call. */
const comparedBytes = 1024

/**
 * A further attempt of the task empties the file and writes into it. That is noticed by the bytes
 * before the position, or, if the attempts wrote the same, by the record, which may be late: text
 * is then shown twice, but never lost.
 */
export class OutputFile {
  readonly #path: string
  #decoder = new StringDecoder()
  #position = 0
  #before = Buffer.alloc(0)
  #attempt = 0
  #isFound = false

  constructor(path: string) {
    this.#path = path
  }

  /** Whether this machine has the file. */
  get isFound(): boolean {
    return this.#isFound
  }

  /**
   * What was written since the last call, in pieces. A character is never cut, and each attempt
   * begins a line. `attempt` is the number of attempts that are known to have begun.
   */
  *read(attempt: number): Generator<string, void> {
    if (!isRegularFile(this.#path)) return
    const fd = openRegularFileSync(this.#path)
    if (!this.#isFound) this.#attempt = attempt
    this.#isFound = true
    try {
      if (attempt > this.#attempt) yield this.#restart(attempt)
      const bytes = Buffer.allocUnsafe(comparedBytes + chunkBytes)
      for (;;) {
        const known = this.#before.length
        // In one call with the new bytes: the file may be emptied at any time.
        const length = readSync(fd, bytes, 0, bytes.length, this.#position - known)
        if (!bytes.subarray(0, Math.min(known, length)).equals(this.#before)) {
          yield this.#restart(this.#attempt + 1)
          continue
        }
        if (length === known) return
        this.#position += length - known
        this.#before = Buffer.from(bytes.subarray(Math.max(0, length - comparedBytes), length))
        yield this.#decoder.write(bytes.subarray(known, length))
      }
    } finally {
      closeSync(fd)
    }
  }

  /** Returns the end of what was read before. */
  #restart(attempt: number): string {
    const rest = this.#decoder.end()
    const isLineOpen = this.#position > 0 && this.#before.at(-1) !== lineBreak
    this.#decoder = new StringDecoder()
    this.#position = 0
    this.#before = Buffer.alloc(0)
    this.#attempt = attempt
    return isLineOpen ? `${rest}\n` : rest
  }
}

const lineBreak = 0x0a
