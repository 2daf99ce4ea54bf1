/** Appends whole lines to one checkpoint file, in order, and survives disk failures. */

import { CheckpointError, errnoOf, messageOf } from '../foundation/errors.ts'
import {
  checkpointFailure,
  createCheckpointFile,
  createFolder,
  GroupCommit,
  syncFolder,
  writeSome,
} from './files.ts'
import { acquireLock, type CheckpointLock, lockPathOf } from './lock.ts'
import { removeRecord } from './record-names.ts'
import { ChunkWriter } from './writing/chunk-writer.ts'
import { FrameRing, type TemplateFrame } from './writing/frame-ring.ts'
import { chunkBytes } from './writing/line-formatter.ts'
import { MainLock, type WriterThread } from './writing/main-lock.ts'
import { lockStates, SharedRecord, sleepStates } from './writing/shared-record.ts'
import type { Segment } from './writing/template.ts'
import {
  type CheckpointWriterOptions,
  type ResolvedWriterOptions,
  resolveWriterOptions,
} from './writing/writer-options.ts'

interface WriteOutage {
  readonly errno: string
  readonly linesLostBefore: number
  readonly retryAtMs: number
  readonly cancelRetry: () => void
}

type Extent = 'chunk' | 'full chunks' | 'all'

const retryIntervalMs = 500
/**
 * The time between two checks by `checkAge`. If a line still waits at the second check, at most
 * 25 ms later, the main thread writes it, because the event loop or the thread is blocked.
 */
const checkSeconds = 0.0125
/** With `beforeWrite`, frames are passed to the thread once they exceed this size in total. */
const maxUnpublishedBytes = 16_384
/** The approximate length of a line made from a template. */
const estimatedLineBytes = 480

/**
 * Appends lines to a new file, and holds the session's lock until `close()`. Only `open` throws.
 * Later failures are reported by `onDegraded`, the log, the counters and `flush`. Lines wait as
 * frames in a ring buffer. A thread writes them. This class writes them itself if there is no
 * thread, and while the disk fails.
 */
export class CheckpointWriter implements AsyncDisposable {
  readonly path: string
  readonly #options: ResolvedWriterOptions
  readonly #fd: number
  readonly #lock: CheckpointLock
  readonly #commit: GroupCommit | undefined
  readonly #record: SharedRecord
  readonly #ring: FrameRing
  readonly #chunks: ChunkWriter
  readonly #mainLock: MainLock
  #thread: WriterThread | null = null
  #canStartThread: boolean
  /** The rest of a line that is partly in the file, or a line that is too large for the ring. */
  #lineRest: Buffer | null = null
  #appended = 0
  /** The approximate number of bytes that wait. Used only without a thread. */
  #pendingBytes = 0
  #lost = 0
  /** The number of lost lines that a rejected `flush` has already reported. */
  #lostReported = 0
  #inPlaceWrites = 0
  #isWriting = false
  #outage: WriteOutage | undefined
  #isExiting = false
  #isClosed = false
  #closing: Promise<void> | undefined
  /** The head of the ring at the last check by `checkAge`, and the time of that check. */
  #checkMark = { position: 0, seconds: 0 }

  /** Creates the file. Throws `CheckpointError` with path, errno and hint if that fails. */
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
    this.#record = SharedRecord.create(resolved.ringBytes)
    this.#ring = new FrameRing(this.#record)
    this.#chunks = new ChunkWriter(this.#record, resolved.ids, files, this.#fd)
    this.#mainLock = new MainLock(this.#record, this.#chunks, this.#fd)
    // With `fsync`, the main thread syncs after each write, so it also writes and needs no thread.
    this.#canStartThread = resolved.startThread !== null && resolved.durability === 'os'
    if (resolved.durability === 'fsync') {
      syncFolder(folder)
      this.#commit = this.#createCommit()
    }
  }

  get linesWritten(): number {
    return this.#record.linesWritten
  }

  get linesLost(): number {
    return this.#lost
  }

  get linesPending(): number {
    return this.#appended - this.#lost - this.linesWritten
  }

  get bytesWritten(): number {
    return this.#record.bytesWritten
  }

  /** How often the caller wrote by itself, or waited for the thread. */
  get inPlaceWrites(): number {
    return this.#inPlaceWrites
  }

  get threadCpuSeconds(): number {
    return this.#record.threadCpuSeconds
  }

  /** Whether `write` must be called at the end of a turn of the event loop that appended lines. */
  get needsWrite(): boolean {
    return this.#options.beforeWrite !== null || !this.#isThreadWriting
  }

  /** Appends a line, which includes its newline. Writes when a chunk is full. Never throws. */
  append(line: string): void {
    if (this.#isClosed) return this.#countLate()
    const length = Buffer.byteLength(line)
    this.#appended++
    if (!this.#ring.canHold(length)) return this.#writeLarge(Buffer.from(line))
    while (!this.#ring.putLine(line, length)) this.#makeRoom()
    this.#frameAdded(length)
  }

  /**
   * Appends a line made from a template. Returns `false` if that is impossible, because the uid has
   * characters that are not ASCII or that JSON escapes, or because the uid or the text is too long.
   * The caller must then use `append`.
   */
  appendValues(frame: TemplateFrame): boolean {
    if (this.#isClosed) return false
    for (;;) {
      const isPut = this.#ring.putValues(frame)
      if (isPut === null) return false
      if (isPut) break
      this.#makeRoom()
    }
    this.#appended++
    this.#frameAdded(estimatedLineBytes)
    return true
  }

  /** Stores a template for `appendValues`. Returns `null` if there is no room for it. */
  addTemplate(segments: readonly Segment[]): number | null {
    return this.#ring.addTemplate(segments)
  }

  /**
   * Must be called with the time of each line. Writes a chunk if lines have waited too long,
   * because the event loop or the thread is blocked.
   */
  checkAge(seconds: number): void {
    const { seconds: from, position } = this.#checkMark
    if (seconds - from <= checkSeconds && seconds >= from) return
    if (!this.#ring.hasPassed(position) && this.#outage === undefined && seconds >= from) {
      this.#inPlaceWrites++
      this.#drain('chunk')
      if (!this.#ring.hasPassed(position)) return
    }
    this.#checkMark = { position: this.#ring.head, seconds }
  }

  /**
   * Must be called at the end of a turn of the event loop. Passes the buffered lines to the thread,
   * or writes them if there is none. After a failed write, waits until the retry is due. Never
   * throws.
   */
  write(): void {
    if (this.#isThreadWriting && !this.#isExiting) this.#publish()
    else this.#drain('all')
  }

  /** Writes all lines. With `now`, even if a retry is not due. Never throws. */
  writeInPlace(when: 'if due' | 'now' = 'if due'): void {
    this.#drain('all', when)
  }

  /** Called when the process exits. Writes all lines. Later lines are not buffered. */
  writeAtExit(): void {
    this.#isExiting = true
    this.#isWriting = false // A callback of a write may end the process, and never return.
    this.#mainLock.isKept = true
    this.#drain('all', 'now')
    this.removeIfUnwritten()
  }

  /** Removes the file if no line could be written, for example on a full disk. Never throws. */
  removeIfUnwritten(): void {
    if (this.linesWritten === 0 && this.#lost + this.linesPending > 0) removeRecord(this.path)
  }

  /**
   * Resolves when all appended lines are in the file, and with `fsync` also on the disk. Rejects
   * with `CheckpointError` while lines cannot be written, and once after lines were dropped.
   */
  async flush(): Promise<void> {
    await this.#writeInTurns()
    const { path } = this
    const isWritten = this.#outage === undefined
    const [pending, lost] = [isWritten ? 0 : this.linesPending, this.#lost - this.#lostReported]
    if (pending === 0) this.#lostReported = this.#lost
    if (pending > 0 || lost > 0) {
      const text = `${pending} lines are not on file yet and ${lost} are lost: ${path}`
      const errno = this.#outage?.errno
      throw new CheckpointError(text, { path, ...(errno === undefined ? {} : { errno }) })
    }
    try {
      await this.#commit?.whenSynced()
    } catch (error) {
      throw checkpointFailure('sync the record', path, error)
    }
  }

  /**
   * Tries to write once more, counts and logs lost lines, syncs, and releases the lock. Removes the
   * file if it has no lines. Idempotent: returns the same promise each time. Never rejects.
   */
  close(): Promise<void> {
    if (this.#closing !== undefined) return this.#closing
    // Set before closing begins, because a callback of the last write may also call `close`.
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#closing = promise
    void this.#closeOnce().then(resolve)
    return promise
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** Writes all lines after the thread has ended or could not start. They are still in the ring. */
  readonly #onThreadEnd = (reason: string): void => {
    this.#mainLock.threadEnded()
    if (this.#record.isStopped) return
    const text = `the thread that writes the record ended (${reason}): ${this.path}`
    this.#warn('CheckpointThreadEnded', text)
    this.#drain('all')
  }

  async #closeOnce(): Promise<void> {
    await this.#writeInTurns()
    this.#mainLock.isKept = true
    this.#drain('all', 'now')
    this.#outage?.cancelRetry()
    this.#isClosed = true
    const unwritten = this.linesPending
    this.#lost += unwritten
    if (unwritten > 0) {
      const text = `${unwritten} lines of the record could not be written to ${this.path}`
      this.#warn('CheckpointLinesLost', text)
    }
    this.#record.stop()
    // A thread that does not run yet (id 0) will write nothing, so its end is not awaited.
    if (this.#record.threadId !== 0) await this.#thread?.ended()
    await this.#commit?.whenSynced().catch(() => {})
    try {
      this.#options.files.close(this.#fd)
    } catch (error) {
      this.#warn('CheckpointCloseFailed', `Cannot close ${this.path}: ${messageOf(error)}`)
    }
    this.removeIfUnwritten()
    this.#lock.release()
  }

  get #isThreadWriting(): boolean {
    return this.#outage === undefined && this.#mainLock.isThreadReady
  }

  #countLate(): void {
    this.#appended++
    this.#lost++
  }

  /** Writes the lines now in the ring, one chunk per event-loop turn if the thread writes too. */
  async #writeInTurns(): Promise<void> {
    if (!this.#mainLock.isThreadReady) return this.#drain('all')
    const target = this.#ring.head
    while (!this.#ring.hasPassed(target)) {
      this.#drain('chunk')
      if (this.#ring.hasPassed(target) || this.#outage !== undefined) return
      await new Promise<void>((resolve) => this.#options.clock.nextTurn(resolve))
    }
  }

  /** Passes an added frame to the thread. Without a thread, writes once a chunk is full. */
  #frameAdded(bytes: number): void {
    if (this.#isExiting) return this.#drain('all', 'now')
    if (this.#isThreadWriting) {
      const isHeldBack = this.#options.beforeWrite !== null
      if (!isHeldBack || this.#ring.unpublishedBytes > maxUnpublishedBytes) this.#publish()
      return
    }
    this.#pendingBytes += bytes
    if (this.#pendingBytes <= chunkBytes && this.#outage === undefined) return
    this.#drain('full chunks')
    if (this.#outage !== undefined) this.#trim()
  }

  #publish(): void {
    if (this.#options.beforeWrite !== null) this.#runSafely(this.#options.beforeWrite)
    this.#ring.publish()
    const { sleepState } = this.#record
    if (sleepState === sleepStates.awake) return
    if (this.#record.lockState === lockStates.failed) return this.#drain('all')
    if (sleepState === sleepStates.asleep || this.#ring.isHalfFull) this.#record.wake()
  }

  /** Makes room in a full ring: waits for the thread, writes a chunk, or drops the oldest line. */
  #makeRoom(): void {
    if (this.#outage !== undefined) return this.#dropOldest()
    this.#inPlaceWrites++
    if (this.#mainLock.isThreadReady && !this.#isWriting) {
      const { tail } = this.#record
      this.#publish()
      this.#mainLock.awaitThread()
      if (this.#record.tail !== tail) return
    }
    if (!this.#isWriting) return this.#drain('chunk')
    // The caller is a callback of the current drain, so no other drain is started.
    this.#ring.publish()
    this.#writePending('chunk')
  }

  #dropOldest(): void {
    this.#ring.publish()
    if (this.#chunks.dropFirst()) this.#lost++
  }

  #drain(which: Extent, when: 'if due' | 'now' = 'if due'): void {
    if (this.#isWriting || this.#isClosed || !this.#isDue(when)) return
    this.#isWriting = true
    const before = this.bytesWritten
    const failure = this.#mainLock.acquire()
    if (failure !== null) this.#onWriteError(failure)
    // The lock is held here, because `beforeWrite` may log warnings, which append events. If the
    // ring is full, only the owner of the lock can make room for these events.
    const { beforeWrite } = this.#options
    if (beforeWrite !== null) this.#runSafely(beforeWrite)
    let extent = which
    // Lines that `onRecovered` appends are written as well.
    while (this.#isDue(when) && this.#writePending(extent) && this.#endOutage()) extent = 'all'
    if (this.#outage === undefined) this.#mainLock.release()
    this.#isWriting = false
    if (this.bytesWritten > before) this.#commit?.requestSync()
    this.#startThreadIfBusy()
  }

  #isDue(when: 'if due' | 'now'): boolean {
    if (this.#outage === undefined || when === 'now') return true
    return this.#options.clock.monotonicMs() >= this.#outage.retryAtMs
  }

  /** Writes as much as `which` says. Needs the lock. Returns `false` on failure. */
  #writePending(which: Extent): boolean {
    const wanted = this.#outage === undefined ? which : 'all'
    this.#ring.publish()
    try {
      this.#writeRest()
      for (;;) {
        const before = this.bytesWritten
        const isWritten = this.#chunks.writeHeld()
        this.#pendingBytes = Math.max(0, this.#pendingBytes - (this.bytesWritten - before))
        if (this.#ring.isEmpty) this.#pendingBytes = 0
        if (!isWritten || wanted === 'chunk') return true
        if (wanted === 'full chunks' && this.#pendingBytes <= chunkBytes) return true
      }
    } catch (error) {
      this.#onWriteError(errnoOf(error))
      return false
    }
  }

  #writeRest(): void {
    while (this.#lineRest !== null) {
      const bytes = this.#lineRest
      const length = Math.min(bytes.length, chunkBytes)
      const written = writeSome(this.#options.files, this.#fd, { bytes, offset: 0, length })
      this.#lineRest = written === bytes.length ? null : bytes.subarray(written)
      this.#chunks.countDirect(written, this.#lineRest === null ? 1 : 0)
    }
  }

  /** Writes a line that is too large for the ring, after all others. Drops it while writes fail. */
  #writeLarge(line: Buffer): void {
    this.#drain('all')
    if (this.#outage !== undefined || this.#isWriting) {
      this.#lost++
      return
    }
    this.#lineRest = line
    this.#drain('all')
  }

  #onWriteError(errno: string): void {
    const { clock, onDegraded } = this.#options
    const last = this.#outage
    last?.cancelRetry()
    this.#lineRest ??= this.#chunks.takeHalfWritten()
    this.#outage = {
      errno,
      linesLostBefore: last?.linesLostBefore ?? this.#lost,
      retryAtMs: clock.monotonicMs() + retryIntervalMs,
      // A timer may fire slightly early, so the retry does not check the time.
      cancelRetry: clock.after(retryIntervalMs, () => this.#drain('all', 'now'), {
        background: true,
      }),
    }
    this.#trim()
    if (last !== undefined) return
    const facts = { errno, lines_pending: this.linesPending }
    const text = `Cannot write the record (${errno}), keeping lines in memory: ${this.path}`
    this.#warn('CheckpointDegraded', text)
    this.#runSafely(() => onDegraded(facts))
  }

  #endOutage(): boolean {
    if (this.#outage === undefined) return false
    const lost = this.#lost - this.#outage.linesLostBefore
    this.#outage.cancelRetry()
    this.#outage = undefined
    this.#runSafely(() => this.#options.onRecovered({ lost }))
    return true
  }

  #trim(): void {
    this.#ring.publish()
    while (this.linesPending > this.#options.maxPendingLines && this.#chunks.dropFirst()) {
      this.#lost++
    }
  }

  /** Starts the thread after enough lines. Its start takes longer than writing a few lines. */
  #startThreadIfBusy(): void {
    const { startThread, linesBeforeThread, ids } = this.#options
    if (!this.#canStartThread || this.linesWritten < linesBeforeThread) return
    if (startThread === null || this.#isExiting || this.#outage !== undefined) return
    if (this.#closing !== undefined) return
    this.#canStartThread = false
    try {
      const { memory } = this.#record
      this.#thread = startThread(
        { memory, fd: this.#fd, key: ids.key },
        {
          failed: () => this.#drain('all'),
          ended: this.#onThreadEnd,
        },
      )
      this.#mainLock.threadStarted()
    } catch (error) {
      this.#onThreadEnd(messageOf(error))
    }
  }

  #createCommit(): GroupCommit {
    const onFailure = (error: unknown): void => {
      const text = `Cannot sync the record (${errnoOf(error)}): ${this.path}`
      this.#warn('CheckpointSyncFailed', text)
    }
    return new GroupCommit(async () => this.#options.files.fdatasync(this.#fd), onFailure)
  }

  #warn(code: string, text: string): void {
    this.#runSafely(() => this.#options.log.warn(code, text))
  }

  #runSafely(step: () => void): void {
    try {
      step()
    } catch {
      // An error of the log or of a callback must not break the writer.
    }
  }
}
