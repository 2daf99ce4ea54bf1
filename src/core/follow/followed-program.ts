/** Writes the output of a running program into files, for the commands that follow it. */

import { appendFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import type { Job } from '../../backends/backend.ts'
import { TextPieces } from '../../backends/captured-text.ts'
import { outputPath } from '../../checkpoint/record-names.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Entry } from '../entry.ts'

/** A longer file begins again, so that a program that is followed for days fills no disk. */
const maxFileLength = 16 * 1024 * 1024

export class FollowedProgram {
  readonly #files: readonly FollowedFile[]
  readonly #find: () => Entry | null
  #entry: Entry | null = null
  #job: Job | null = null
  readonly #listener = { ended: () => this.#end(), withdrawn: () => {} }

  constructor(folder: string, uid: string, find: () => Entry | null) {
    this.#files = [
      new FollowedFile(outputPath(folder, uid, 'stdout'), 'stdout'),
      new FollowedFile(outputPath(folder, uid, 'stderr'), 'stderr'),
    ]
    this.#find = find
  }

  async update(): Promise<void> {
    const entry = (this.#entry ??= this.#listen(this.#find()))
    if (entry === null || entry.record.hasEnded) return
    const { job, connection } = entry
    if (job?.spec.kind !== 'program' || connection?.output === undefined) return
    const output = await connection.output(job).catch(() => null)
    // It may have ended meanwhile, with more output than this.
    if (output === null || entry.job !== job || entry.record.hasEnded) return
    this.#begin(job)
    for (const file of this.#files) file.write(output, false)
  }

  async remove(): Promise<void> {
    this.#entry?.endListeners?.delete(this.#listener)
    await Promise.all(this.#files.map(({ path }) => rm(path, { force: true })))
  }

  #listen(entry: Entry | null): Entry | null {
    if (entry !== null) (entry.endListeners ??= new Set()).add(this.#listener)
    return entry
  }

  /** A further attempt has an output of its own, which follows that of the one before. */
  #begin(job: Job): void {
    if (this.#job !== job) for (const file of this.#files) file.begin()
    this.#job = job
  }

  /** Synchronous: a command that finds the end in the record finds all output in the files. */
  #end(): void {
    const { job = null, record } = this.#entry ?? {}
    const output = record?.output ?? record?.value
    if (job?.spec.kind !== 'program' || typeof output !== 'object' || output === null) return
    try {
      this.#begin(job)
      for (const file of this.#files) file.write(output, true)
    } catch {
      // A full disk, or a folder that was removed: the command shows what the record has.
    }
  }
}

class FollowedFile {
  readonly path: string
  readonly #stream: 'stdout' | 'stderr'
  #pieces = new TextPieces()
  #length = 0

  constructor(path: string, stream: 'stdout' | 'stderr') {
    this.path = path
    this.#stream = stream
  }

  begin(): void {
    this.#pieces = new TextPieces()
  }

  write(output: ProgramOutput, isLast: boolean): void {
    const isTruncated = output[`${this.#stream}Truncated`] === true
    const piece = maskSecrets(this.#pieces.next(output[this.#stream] ?? '', isTruncated, isLast))
    this.#length += Buffer.byteLength(piece)
    if (this.#length <= maxFileLength) return appendFileSync(this.path, piece)
    writeFileSync(this.path, `[... the beginning was left out ...]\n${piece}`)
    this.#length = Buffer.byteLength(piece)
  }
}
