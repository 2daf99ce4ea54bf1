/** Results in a folder, one file each: written whole or not at all, and checked when read. */

import { createHash } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import { makeFolders } from '../checkpoint/make-folders.ts'
import { newUuid } from '../foundation/ids.ts'
import { Gate } from './gate.ts'

const digestBytes = 32
/** Every file under way holds a descriptor, and a process has few of them. */
const mostAtOnce = 32

/** A value that was found; it may be `undefined`. */
export interface Found {
  readonly value: unknown
}

export class MemoStore {
  readonly #folder: string
  readonly #gate = new Gate(mostAtOnce)

  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * `null` when there is none, or none that can be trusted: a torn file is as good as no file.
   * Rejects when a file cannot be read.
   */
  async read(key: string): Promise<Found | null> {
    const bytes = await this.#gate.pass(() => readFile(this.#pathOf(key)).catch(nullIfMissing))
    if (bytes === null) return null
    try {
      const content = bytes.subarray(digestBytes)
      if (!digestOf(content).equals(bytes.subarray(0, digestBytes))) return null
      const found: unknown = deserialize(content)
      return typeof found === 'object' && found !== null && 'value' in found ? found : null
    } catch {
      return null
    }
  }

  /** Replaces what was there. Rejects when the value cannot be stored. */
  async write(key: string, value: unknown): Promise<void> {
    const content = serialize({ value })
    await this.#gate.pass(() => this.#replace(key, content))
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

function nullIfMissing(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null
  throw error
}
