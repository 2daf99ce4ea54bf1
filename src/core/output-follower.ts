/** Writes the output of running programs to files on request, for commands such as `tutti logs`. */

import { appendFileSync, writeFileSync } from 'node:fs'
import { readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Job } from '../backends/backend.ts'
import { OutputDeltas } from '../backends/captured-text.ts'
import { followFolderOf, outputPath, requestedUid } from '../checkpoint/record-names.ts'
import type { Clock } from '../foundation/clock.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import type { ProgramOutput } from '../tasks/task-record.ts'
import type { Entry } from './entry.ts'

const pollIntervalMs = 1000
/** A request is removed if its command has not renewed it for this long. */
const requestTimeoutMs = 10_000
/** The maximum length of a file. A longer file is overwritten, so that the disk does not fill. */
const maxFileLength = 16 * 1024 * 1024

export interface OutputFollowerParts {
  readonly clock: Clock
  readonly record: string
  readonly find: (uid: string) => Entry | null
}

/**
 * Follows the output of programs for which a command has written a request. Without requests, the
 * only cost is reading one folder per second.
 */
export class OutputFollower {
  readonly #parts: OutputFollowerParts
  readonly #folder: string
  /** `seenMs` is a time of this host, because the clock of the requesting host may differ. */
  readonly #requests = new Map<string, { readonly changed: number; readonly seenMs: number }>()
  readonly #followed = new Map<string, FollowedProgram>()
  #cancelPoll: () => void = () => {}
  #isStopped = false

  constructor(parts: OutputFollowerParts) {
    this.#parts = parts
    this.#folder = followFolderOf(parts.record)
  }

  start(): void {
    if (this.#isStopped) return
    const poll = (): void => {
      // An error is ignored: a folder that cannot be read or written must not disturb the session.
      const polled = this.#poll().catch(() => {})
      void polled.then(() => this.start())
    }
    this.#cancelPoll = this.#parts.clock.after(pollIntervalMs, poll, { background: true })
  }

  /** Stops following. Files that a command is still reading are kept; the command removes them. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancelPoll()
    await this.#readRequests().catch(() => {})
  }

  async #poll(): Promise<void> {
    await this.#readRequests()
    await Promise.all(Array.from(this.#followed.values(), (one) => one.update()))
  }

  async #readRequests(): Promise<void> {
    const names = await readdir(this.#folder).catch(() => null)
    const requestedNames = new Set<string>()
    for (const name of names ?? []) {
      const uid = requestedUid(name)
      if (uid === null) continue
      if (await this.#isFresh(name)) requestedNames.add(uid)
      else await rm(join(this.#folder, name), { force: true })
    }
    for (const uid of requestedNames) {
      const find = (): Entry | null => this.#parts.find(uid)
      if (!this.#followed.has(uid)) {
        this.#followed.set(uid, new FollowedProgram(this.#folder, uid, find))
      }
    }
    for (const [uid, one] of this.#followed) {
      if (requestedNames.has(uid)) continue
      this.#followed.delete(uid)
      await one.remove()
    }
    if (names === null || requestedNames.size > 0) return
    this.#requests.clear()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #isFresh(name: string): Promise<boolean> {
    const changed = (await stat(join(this.#folder, name)).catch(() => null))?.mtimeMs
    if (changed === undefined) return false
    const nowMs = this.#parts.clock.monotonicMs()
    const known = this.#requests.get(name)
    if (known?.changed === changed) return nowMs - known.seenMs < requestTimeoutMs
    this.#requests.set(name, { changed, seenMs: nowMs })
    return true
  }
}

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
    // If the program has ended in the meantime, `#end` has already written more output than this.
    if (output === null || entry.job !== job || entry.record.hasEnded) return
    this.#beginAttempt(job)
    for (const file of this.#files) file.write(output, false)
  }

  async remove(): Promise<void> {
    this.#entry?.removeEndListener(this.#listener)
    await Promise.all(this.#files.map(({ path }) => rm(path, { force: true })))
  }

  #listen(entry: Entry | null): Entry | null {
    entry?.addEndListener(this.#listener)
    return entry
  }

  #beginAttempt(job: Job): void {
    if (this.#job !== job) for (const file of this.#files) file.beginAttempt()
    this.#job = job
  }

  /**
   * Synchronous, so that all output is in the files before the end of the task is in the record.
   */
  #end(): void {
    const { job = null, record } = this.#entry ?? {}
    const output = record?.output ?? record?.value
    if (job?.spec.kind !== 'program' || typeof output !== 'object' || output === null) return
    try {
      this.#beginAttempt(job)
      for (const file of this.#files) file.write(output, true)
    } catch {
      // The disk is full or the folder was removed. The command shows the recorded output instead.
    }
  }
}

class FollowedFile {
  readonly path: string
  readonly #stream: 'stdout' | 'stderr'
  #pieces = new OutputDeltas()
  #length = 0

  constructor(path: string, stream: 'stdout' | 'stderr') {
    this.path = path
    this.#stream = stream
  }

  beginAttempt(): void {
    this.#pieces = new OutputDeltas()
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
