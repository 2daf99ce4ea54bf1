/** Files whose contents are parsed at the start and whenever a file changes. */

import { stat } from 'node:fs/promises'
import type { Clock } from '../../foundation/clock.ts'
import { describeReadProblem, openRegularFile } from '../../foundation/regular-file.ts'

interface WatchedFilesOptions<Value> {
  readonly files: readonly string[]
  /** Converts the contents of all files. If it throws after the start, the old value is kept. */
  readonly parse: (contents: readonly Buffer[]) => Value
  readonly onChange?: (value: Value) => void
  /** Called when changed files cannot be read or parsed. */
  readonly onError: (error: unknown) => void
  readonly clock: Clock
}

/** The files are polled, because network file systems report no changes of other machines. */
const pollMs = 1000

export class WatchedFiles<Value> {
  readonly #options: WatchedFilesOptions<Value>
  /** The versions that were read last, and those of the last check. */
  #versions: string
  #seenVersions: string
  #value: Value
  #stopTimer = (): void => {}
  #isClosed = false

  /** Rejects if a file cannot be read or parsed. */
  static async open<Value>(options: WatchedFilesOptions<Value>): Promise<WatchedFiles<Value>> {
    // Read before the contents, so that a change in between is noticed.
    const versions = await readVersions(options.files)
    return new WatchedFiles(options, versions, await readValue(options))
  }

  private constructor(options: WatchedFilesOptions<Value>, versions: string, value: Value) {
    this.#options = options
    this.#versions = versions
    this.#seenVersions = versions
    this.#value = value
    this.#scheduleCheck()
  }

  /** The result of the last files that could be parsed. */
  get value(): Value {
    return this.#value
  }

  close(): void {
    this.#isClosed = true
    this.#stopTimer()
  }

  #scheduleCheck(): void {
    if (this.#isClosed) return
    const check = (): void => void this.#check().finally(() => this.#scheduleCheck())
    this.#stopTimer = this.#options.clock.after(pollMs, check, { background: true })
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    const { files, onChange, onError } = this.#options
    const versions = await readVersions(files)
    // A file that has changed since the last check may be half written.
    const isWritten = versions === this.#seenVersions
    this.#seenVersions = versions
    if (!isWritten || versions === this.#versions) return
    this.#versions = versions
    try {
      this.#value = await readValue(this.#options)
      if (!this.#isClosed) onChange?.(this.#value)
    } catch (error) {
      onError(error)
    }
  }
}

async function readValue<Value>({ files, parse }: WatchedFilesOptions<Value>): Promise<Value> {
  return parse(await Promise.all(files.map(readRegularFile)))
}

async function readRegularFile(path: string): Promise<Buffer> {
  try {
    await using file = await openRegularFile(path)
    return await file.readFile()
  } catch (error) {
    throw new Error(describeReadProblem(path, error), { cause: error })
  }
}

/** A text that changes with the files. The inode changes if a file is replaced. */
async function readVersions(files: readonly string[]): Promise<string> {
  const versions = files.map((file) =>
    stat(file).then(
      ({ mtimeMs, size, ino }) => `${mtimeMs} ${size} ${ino}`,
      () => 'unreadable',
    ),
  )
  return (await Promise.all(versions)).join('\n')
}
