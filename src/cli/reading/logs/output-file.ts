/** A file into which a program writes its output, read as far as it was written. */

import { closeSync, fstatSync, readSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { isRegularFile, openRegularFileSync } from '../../../foundation/regular-file.ts'

const chunkBytes = 65_536

export class OutputFile {
  readonly #path: string
  readonly #decoder = new StringDecoder()
  #position = 0
  #isFound = false

  constructor(path: string) {
    this.#path = path
  }

  /** Whether this machine has the file. */
  get isFound(): boolean {
    return this.#isFound
  }

  /** What was written since the last call, in pieces. A character is never cut. */
  *read(): Generator<string, void> {
    if (!isRegularFile(this.#path)) return
    const fd = openRegularFileSync(this.#path)
    this.#isFound = true
    try {
      // A further attempt of the task has emptied the file.
      if (fstatSync(fd).size < this.#position) this.#position = 0
      const bytes = Buffer.allocUnsafe(chunkBytes)
      for (;;) {
        const length = readSync(fd, bytes, 0, chunkBytes, this.#position)
        if (length === 0) return
        this.#position += length
        yield this.#decoder.write(bytes.subarray(0, length))
      }
    } finally {
      closeSync(fd)
    }
  }
}
