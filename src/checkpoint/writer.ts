/**
 * Appends whole lines to one checkpoint file, in order, and survives disk failures. The content of
 * the lines is not interpreted.
 */

import { CheckpointError, errnoOf, messageOf } from '../foundation/errors.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'
import { expectId, expectInteger, expectString, invalid } from '../foundation/options.ts'
import {
  checkpointFailure,
  createCheckpointFile,
  createFolder,
  type FileOperations,
  GroupCommit,
  nodeFiles,
  syncFolder,
  writeSome,
} from './files.ts'
import { acquireLock, type CheckpointLock, lockPathOf } from './lock.ts'
import { PendingLines } from './pending-lines.ts'
import { removeRecord } from './record-names.ts'

export interface CheckpointWriterOptions {
  /** Created with its parent folders if missing. */
  readonly folder: string
  readonly sessionId: string
  readonly clock: Clock
  readonly log: Log
  /** Flushed lines survive a killed process (`os`, default) or also a power loss (`fsync`). */
  readonly durability?: 'os' | 'fsync'
  /** The session's lock, if it is already held. `close` releases it. */
  readonly lock?: CheckpointLock | null
  /** Called before lines are written, so that data they refer to can be written first. */
  readonly beforeWrite?: () => void
  /** Called when writing fails for the first time since it last worked. May call `append`. */
  readonly onDegraded?: (facts: { errno: string; lines_pending: number }) => void
  /** Called when all kept lines are in the file; `lost` lines were dropped. May call `append`. */
  readonly onRecovered?: (facts: { lost: number }) => void
  readonly files?: FileOperations
  /** The maximum number of lines kept while writing fails. Default 50,000. */
  readonly maxPendingLines?: number
  /** The maximum number of bytes kept while writing fails. Default 16 MiB. */
  readonly maxPendingBytes?: number
}

/** A period in which writing fails, from the first failed write to the next complete one. */
interface Episode {
  readonly errno: string
  readonly lostBefore: number
  readonly retryAtMs: number
  readonly cancelRetry: () => void
}

const retryMs = 500

/**
 * Appends to one new file until `close()`. Only `open` throws; later failures are reported by
 * `onDegraded`, the log, the counters and `flush`. Holds the session's lock from `open` to `close`.
 */
export class CheckpointWriter implements AsyncDisposable {
  readonly path: string
  readonly #options: ResolvedWriterOptions
  readonly #fd: number
  readonly #lock: CheckpointLock
  readonly #commit: GroupCommit | undefined
  readonly #pending = new PendingLines()
  #written = 0
  #lost = 0
  /** The number of lost lines that a rejected `flush` has already reported. */
  #lostReported = 0
  #isWriting = false
  #episode: Episode | undefined
  #isClosed = false
  #closing: Promise<void> | undefined

  /** Throws `CheckpointError` with path, errno and hint when the file cannot be created. */
  static open(options: CheckpointWriterOptions): CheckpointWriter {
    return new CheckpointWriter(options)
  }

  private constructor(options: CheckpointWriterOptions) {
    const resolved = resolveWriterOptions(options)
    const { clock, files, sessionId } = resolved
    this.#options = resolved
    const folder = createFolder(resolved.folder)
    this.#lock = resolved.lock ?? acquireLock(lockPathOf(folder, sessionId))
    try {
      const file = createCheckpointFile(files, folder, sessionId, clock.now())
      this.path = file.path
      this.#fd = file.fd
    } catch (error) {
      if (resolved.lock === null) this.#lock.release()
      throw error
    }
    if (resolved.durability === 'fsync') {
      syncFolder(folder)
      this.#commit = this.#createCommit()
    }
  }

  /** The number of lines that are completely in the file. */
  get linesWritten(): number {
    return this.#written
  }

  /** The number of dropped lines. */
  get linesLost(): number {
    return this.#lost
  }

  /** The number of lines that are not in the file yet. */
  get linesPending(): number {
    return this.#pending.lines
  }

  /** Accepts one whole line with its newline; writes as soon as a chunk is full. Never throws. */
  append(line: string): void {
    if (this.#isClosed) {
      this.#lost++
      return
    }
    this.#pending.append(line)
    if (!this.#pending.hasChunk && this.#episode === undefined) return
    this.#drain('chunks')
    if (this.#episode !== undefined || this.#isWriting) this.#trim()
  }

  /**
   * Writes the buffered lines. While a failed write waits for its retry, only `now` tries again.
   * Never throws.
   */
  write(when: 'if due' | 'now' = 'if due'): void {
    this.#drain('all', when)
  }

  /** Removes the file if no line could be written, for example on a full disk. Never throws. */
  removeIfRefused(): void {
    if (this.#written === 0 && this.#lost + this.linesPending > 0) removeRecord(this.path)
  }

  /**
   * Resolves when all appended lines are in the file, and with `fsync` synced to the disk. Rejects
   * with `CheckpointError` while lines cannot be written, and then once for the lines that were
   * dropped meanwhile; later calls report only later losses. `linesLost` is the total.
   */
  async flush(): Promise<void> {
    this.write()
    const { path } = this
    const [pending, lost] = [this.linesPending, this.#lost - this.#lostReported]
    if (pending === 0) this.#lostReported = this.#lost
    if (pending > 0 || lost > 0) {
      const text = `${pending} lines are not on file yet and ${lost} are lost: ${path}`
      const errno = this.#episode?.errno
      throw new CheckpointError(text, { path, ...(errno === undefined ? {} : { errno }) })
    }
    try {
      await this.#commit?.settled()
    } catch (error) {
      throw checkpointFailure('sync the record', path, error)
    }
  }

  /**
   * Tries to write once more, counts and logs lost lines, syncs, closes the file and releases the
   * lock. Removes a file without lines. Idempotent: returns the same promise. Never rejects.
   */
  close(): Promise<void> {
    if (this.#closing !== undefined) return this.#closing
    // Set first, because a callback of the last write may also call `close`.
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#closing = promise
    void this.#closeOnce().then(resolve)
    return promise
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #closeOnce(): Promise<void> {
    this.#drain('all', 'now')
    this.#episode?.cancelRetry()
    this.#isClosed = true
    const unwritten = this.#pending.lines
    this.#lost += unwritten
    this.#pending.clear()
    if (unwritten > 0) {
      const text = `${unwritten} lines of the record could not be written to ${this.path}`
      this.#warn('CheckpointLinesLost', text)
    }
    await this.#commit?.settled().catch(() => {})
    try {
      this.#options.files.close(this.#fd)
    } catch (error) {
      this.#warn('CheckpointCloseFailed', `Cannot close ${this.path}: ${messageOf(error)}`)
    }
    this.removeIfRefused()
    this.#lock.release()
  }

  #drain(which: 'chunks' | 'all', when: 'if due' | 'now' = 'if due'): void {
    if (this.#isWriting || this.#isClosed || !this.#isDue(when)) return
    this.#isWriting = true
    this.#attempt(this.#options.beforeWrite)
    const before = this.#written
    // `onRecovered` is called once per episode; lines that it appends are written as well.
    while (this.#writePending(which) && this.#endEpisode()) which = 'all'
    this.#isWriting = false
    if (this.#written > before) this.#commit?.wrote()
  }

  #isDue(when: 'if due' | 'now'): boolean {
    if (this.#episode === undefined || when === 'now') return true
    return this.#options.clock.monotonicMs() >= this.#episode.retryAtMs
  }

  /** Returns whether everything was written. */
  #writePending(which: 'chunks' | 'all'): boolean {
    const wanted = this.#episode === undefined ? which : 'all'
    for (;;) {
      const slice = this.#pending.next(wanted)
      if (slice === undefined) return true
      try {
        this.#written += this.#pending.advance(writeSome(this.#options.files, this.#fd, slice))
      } catch (error) {
        this.#fail(errnoOf(error))
        return false
      }
    }
  }

  #fail(errno: string): void {
    const { clock, onDegraded } = this.#options
    const last = this.#episode
    last?.cancelRetry()
    this.#episode = {
      errno,
      lostBefore: last?.lostBefore ?? this.#lost,
      retryAtMs: clock.monotonicMs() + retryMs,
      // Use 'now', because a timer may fire slightly early and there is no second one.
      cancelRetry: clock.after(retryMs, () => this.#drain('all', 'now'), { background: true }),
    }
    this.#trim()
    if (last !== undefined) return
    const facts = { errno, lines_pending: this.#pending.lines }
    const text = `Cannot write the record (${errno}), keeping lines in memory: ${this.path}`
    this.#warn('CheckpointDegraded', text)
    this.#attempt(() => onDegraded(facts))
  }

  /** Returns false if no episode was open. */
  #endEpisode(): boolean {
    if (this.#episode === undefined) return false
    const lost = this.#lost - this.#episode.lostBefore
    this.#episode.cancelRetry()
    this.#episode = undefined
    this.#attempt(() => this.#options.onRecovered({ lost }))
    return true
  }

  #trim(): void {
    this.#lost += this.#pending.trim(this.#options.pendingLimit)
  }

  #createCommit(): GroupCommit {
    const onFailure = (error: unknown): void => {
      const text = `Cannot sync the record (${errnoOf(error)}): ${this.path}`
      this.#warn('CheckpointSyncFailed', text)
    }
    return new GroupCommit(async () => this.#options.files.fdatasync(this.#fd), onFailure)
  }

  #warn(code: string, text: string): void {
    this.#attempt(() => this.#options.log.warn(code, text))
  }

  /** An error of the log or of a callback must not break the writer. */
  #attempt(step: () => void): void {
    try {
      step()
    } catch {
      // Callbacks handle their own errors.
    }
  }
}

interface ResolvedWriterOptions {
  readonly folder: string
  readonly sessionId: string
  readonly clock: Clock
  readonly log: Log
  readonly durability: 'os' | 'fsync'
  readonly lock: CheckpointLock | null
  readonly beforeWrite: () => void
  readonly onDegraded: NonNullable<CheckpointWriterOptions['onDegraded']>
  readonly onRecovered: NonNullable<CheckpointWriterOptions['onRecovered']>
  readonly files: FileOperations
  readonly pendingLimit: { readonly lines: number; readonly bytes: number }
}

/** Fills in the defaults; throws `ValueError` for a value out of range. */
function resolveWriterOptions(options: CheckpointWriterOptions): ResolvedWriterOptions {
  const { clock, log, durability = 'os', onDegraded = () => {}, onRecovered = () => {} } = options
  const { lock = null, beforeWrite = () => {} } = options
  const { files = nodeFiles, maxPendingLines = 50_000, maxPendingBytes = 16 * 2 ** 20 } = options
  if (durability !== 'os' && durability !== 'fsync') {
    throw invalid('durability', '"os" or "fsync"', durability)
  }
  return {
    folder: expectString('folder', options.folder),
    // Always checked here, because the id becomes part of a file name.
    sessionId: expectId('sessionId', options.sessionId),
    clock,
    log,
    durability,
    lock,
    beforeWrite,
    onDegraded,
    onRecovered,
    files,
    pendingLimit: {
      lines: expectInteger('maxPendingLines', maxPendingLines, { min: 1 }),
      bytes: expectInteger('maxPendingBytes', maxPendingBytes, { min: 1 }),
    },
  }
}
