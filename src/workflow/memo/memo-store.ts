/** Stores results in a folder, one file each, replaced atomically and verified by a digest. */

import { createHash } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { serialize } from 'node:v8'
import { makeFolders } from '../../checkpoint/files.ts'
import { fromBytes } from '../../checkpoint/kept-value.ts'
import { newUuid } from '../../foundation/ids.ts'
import { openRegularFile } from '../../foundation/regular-file.ts'
import { Semaphore } from '../../runtime/fifo.ts'

const digestBytes = 32
const maxOpenFiles = 32

/** A stored value, which may be `undefined`. */
export interface Found {
  readonly value: unknown
}

export class MemoStore {
  readonly #folder: string
  readonly #files = new Semaphore(maxOpenFiles)

  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * `null` if there is no result or its file is damaged. Rejects if the file cannot be read or is
   * not a regular file.
   */
  async read(key: string): Promise<Found | null> {
    const bytes = await this.#files.run(() => readResult(this.#pathOf(key)))
    if (bytes === null) return null
    try {
      const content = bytes.subarray(digestBytes)
      if (!digestOf(content).equals(bytes.subarray(0, digestBytes))) return null
      const found = fromBytes(content)?.value
      return typeof found === 'object' && found !== null && 'value' in found ? found : null
    } catch {
      return null
    }
  }

  /** Replaces an earlier result. Rejects if the value cannot be serialized or written. */
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

/** `null` if the file does not exist. */
async function readResult(path: string): Promise<Buffer | null> {
  const file = await openRegularFile(path).catch(nullIfMissing)
  if (file === null) return null
  try {
    return await file.readFile()
  } finally {
    await file.close()
  }
}

function nullIfMissing(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null
  throw error
}
