/** Stores each result in a file, which is replaced atomically and verified by a digest. */

import { createHash } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { serialize } from 'node:v8'
import { makeFolders } from '../../checkpoint/files.ts'
import { deserializeValue } from '../../checkpoint/kept-value.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { openRegularFile } from '../../foundation/regular-file.ts'
import { Semaphore } from '../../runtime/fifo.ts'

const digestBytes = 32
const maxOpenFiles = 32

/** A stored value. It is wrapped, because `undefined` is a valid result. */
export interface StoredResult {
  readonly value: unknown
}

export class MemoStore {
  readonly #folder: string
  readonly #files = new Semaphore(maxOpenFiles)

  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * Reads a result. Resolves with `null` if no result is stored or its file is damaged. Rejects if
   * the file cannot be read or is not a regular file.
   */
  async read(key: string): Promise<StoredResult | null> {
    const bytes = await this.#files.run(() => readIfExists(this.#pathOf(key)))
    if (bytes === null) return null
    try {
      const content = bytes.subarray(digestBytes)
      if (!digestOf(content).equals(bytes.subarray(0, digestBytes))) return null
      const found = deserializeValue(content)?.value
      return typeof found === 'object' && found !== null && 'value' in found ? found : null
    } catch {
      return null
    }
  }

  /**
   * Stores a result and replaces an earlier one. Rejects if the value cannot be serialized or
   * written.
   */
  async write(key: string, value: unknown): Promise<void> {
    const content = serialize({ value })
    await this.#files.run(() => this.#replace(key, content))
  }

  async #replace(key: string, content: Buffer): Promise<void> {
    makeFolders(this.#folder)
    const draft = `${this.#pathOf(key)}.${newUuid()}.tmp`
    try {
      await writeFile(draft, Buffer.concat([digestOf(content), content]))
      await rename(draft, this.#pathOf(key))
    } catch (error) {
      await rm(draft, { force: true })
      throw error
    }
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}.result`)
  }
}

const digestOf = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest()

async function readIfExists(path: string): Promise<Buffer | null> {
  try {
    await using file = await openRegularFile(path)
    return await file.readFile()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null
    throw error
  }
}
