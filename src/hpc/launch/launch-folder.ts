/** The folder of one launch: what the batch script and the launcher tell each other by files. */

import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { readSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import { endedFile, signaledFile, type LaunchFacts } from '../start-method.ts'

/** Beside the records of runs. */
export const launchParent = './telemetry'
const suffix = '.launch'

/** Files that the batch script writes. */
export const launchFiles = {
  /** Read by the script's backend. */
  facts: 'launch.json',
  script: 'batch.sh',
  /** What Slurm itself says to the batch script. */
  log: 'batch.log',
  started: 'started',
  stdout: 'stdout.log',
  stderr: 'stderr.log',
  exit: 'exit',
  /** What is asked of the script's first session. */
  request: 'request.json',
  ended: endedFile,
  signaled: signaledFile,
} as const

export class LaunchFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** Nothing is there before the first `write`. A session that is resumed has several. */
  static of(parent: string, sessionId: string): LaunchFolder {
    for (let count = 1; ; count++) {
      const name = count === 1 ? sessionId : `${sessionId}-${count}`
      const path = join(parent, `${name}${suffix}`)
      if (!existsSync(path)) return new LaunchFolder(path)
    }
  }

  /** The folder of a job that was launched from here, or `null`. */
  static find(parent: string, jobId: string): LaunchFolder | null {
    if (!existsSync(parent)) return null
    const names = readdirSync(parent).filter((name) => name.endsWith(suffix))
    const folders = names.map((name) => new LaunchFolder(join(parent, name)))
    return folders.find((folder) => folder.facts()?.jobId === jobId) ?? null
  }

  file(name: keyof typeof launchFiles): string {
    return join(this.path, launchFiles[name])
  }

  /** Throws `ValueError` where it cannot: before anything is asked of a scheduler. */
  write(name: keyof typeof launchFiles, content: string): void {
    const file = this.file(name)
    try {
      makeFolders(resolve(this.path))
      writeFileSync(`${file}.new`, content)
      renameSync(`${file}.new`, file)
    } catch (cause) {
      throw unwritable(file, cause)
    }
  }

  /** Of a launch that did not begin. */
  remove(): void {
    rmSync(this.path, { recursive: true, force: true })
  }

  facts(): LaunchFacts | null {
    try {
      return JSON.parse(readFileSync(this.file('facts'), 'utf8')) as LaunchFacts
    } catch {
      return null
    }
  }

  get hasStarted(): boolean {
    return existsSync(this.file('started'))
  }

  /** Whether the allocation has ended the script's tasks. */
  get hasEnded(): boolean {
    return existsSync(this.file('ended'))
  }

  /** Of the script; `null` while it runs. */
  exitCode(): number | null {
    try {
      const text = readFileSync(this.file('exit'), 'utf8').trim()
      return /^\d+$/.test(text) ? Number(text) : null
    } catch {
      return null
    }
  }
}

/** Reads what is added to a file that may not be there yet. */
export class FollowedFile {
  readonly #path: string
  #position = 0

  constructor(path: string) {
    this.#path = path
  }

  /** What was added since the last call. */
  read(): Buffer {
    if (!existsSync(this.#path)) return Buffer.alloc(0)
    const descriptor = openSync(this.#path, 'r')
    try {
      const parts: Buffer[] = []
      for (;;) {
        const part = Buffer.alloc(65_536)
        const length = readSync(descriptor, part, 0, part.length, this.#position)
        if (length === 0) return Buffer.concat(parts)
        this.#position += length
        parts.push(part.subarray(0, length))
      }
    } finally {
      closeSync(descriptor)
    }
  }
}

const unwritable = (path: string, cause: unknown): ValueError =>
  new ValueError(`${path} cannot be written: ${messageOf(cause)}`, { cause })
