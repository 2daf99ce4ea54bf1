/** The main thread's side of the lock for writing. Detects that the writer thread has died. */

import { existsSync, fstatSync } from 'node:fs'
import type { ChunkWriter } from './chunk-writer.ts'
import { lockStates, type SharedRecord, sleepStates } from './shared-record.ts'

/** A running writer thread. */
export interface WriterThread {
  /** Resolves when the thread has ended, which it does soon after `SharedRecord.stop()`. */
  ended(): Promise<void>
}

/** How long the thread may format a chunk before the main thread formats the chunk itself. */
const maxFormatMs = 2
/** How often the main thread checks whether a thread that writes is still alive. */
const checkMs = 10

export class MainLock {
  readonly #record: SharedRecord
  readonly #chunks: ChunkWriter
  readonly #fd: number
  /** Whether the main thread keeps the lock, because no thread writes. */
  isKept = true
  #hasThread = false
  #hasThreadBegun = false

  constructor(record: SharedRecord, chunks: ChunkWriter, fd: number) {
    this.#record = record
    this.#chunks = chunks
    this.#fd = fd
    record.tryLock(record.lock, lockStates.main)
  }

  /** Whether the thread runs and may write. */
  get isThreadReady(): boolean {
    if (!this.#hasThread || this.isKept) return false
    this.#hasThreadBegun ||= this.#record.threadId !== 0
    return this.#hasThreadBegun
  }

  threadStarted(): void {
    this.#hasThread = true
    this.isKept = false
    this.release()
  }

  /** Called when the thread has ended. Afterwards, only the main thread writes. */
  threadEnded(): void {
    this.#hasThread = false
    this.isKept = true
  }

  /**
   * Takes the lock. Waits for a write under way, and for a short time for a chunk that is being
   * formatted. If the thread's last write has failed, returns the name of its error.
   */
  acquire(): string | null {
    const record = this.#record
    let waitedMs = 0
    for (;;) {
      const seen = record.lock
      const state = record.lockState
      if (state === lockStates.main) return null
      const isWriting = state === lockStates.writing
      const isTaken = state === lockStates.formatting && waitedMs < maxFormatMs
      if ((!isWriting && !isTaken) || !this.#isThreadAlive()) {
        if (!record.tryLock(seen, lockStates.main)) continue
        // The system call of a dead thread may have returned before the thread could report it.
        if (isWriting) this.#chunks.countWritten(fstatSync(this.#fd).size)
        return state === lockStates.failed ? record.errno : null
      }
      const ms = isWriting ? checkMs : maxFormatMs
      record.awaitLock(seen, ms)
      waitedMs += isWriting ? 0 : ms
    }
  }

  release(): void {
    const record = this.#record
    if (this.isKept || record.lockState !== lockStates.main) return
    record.tryLock(record.lock, lockStates.free)
    record.notifyLock()
    this.wakeIfAsleep()
  }

  wakeIfAsleep(): void {
    if (this.#record.sleepState === sleepStates.asleep) this.#record.wake()
  }

  /** Waits until the thread changes the lock, at most `maxFormatMs`. */
  awaitThread(): void {
    const seen = this.#record.lock
    const state = this.#record.lockState
    const isBusy = state === lockStates.formatting || state === lockStates.writing
    if (isBusy) this.#record.awaitLock(seen, maxFormatMs)
  }

  #isThreadAlive(): boolean {
    if (!this.#hasThread) return false
    const { threadId } = this.#record
    // When `exit` listeners run, the thread may have ended without reporting it.
    return threadId <= 0 || existsSync(`/proc/self/task/${threadId}`)
  }
}
