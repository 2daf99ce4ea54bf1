/** The options of the writer of a record, their defaults and checks. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { expectId, expectInteger, expectString, invalid } from '../../foundation/options.ts'
import { DerivedIds, newIdKey } from '../../events/derived-ids.ts'
import { type FileOperations, systemFiles } from '../files.ts'
import type { CheckpointLock } from '../lock.ts'
import type { WriterThread } from './main-lock.ts'

export interface CheckpointWriterOptions {
  /** The folder of the file. It is created with its parents if it does not exist. */
  readonly folder: string
  readonly sessionId: string
  readonly clock: Clock
  readonly log: Log
  /**
   * With `os`, flushed lines survive a killed process; with `fsync`, also a power loss. Default
   * `os`.
   */
  readonly durability?: 'os' | 'fsync'
  /** The session's lock, if it is already held. `close` releases it. */
  readonly lock?: CheckpointLock | null
  /** Called before lines are written, to write data that the lines refer to. */
  readonly beforeWrite?: () => void
  /** Called when writing begins to fail. May call `append`. */
  readonly onDegraded?: (facts: { errno: string; lines_pending: number }) => void
  /**
   * Called when writing works again and all kept lines are written. `lost` lines were dropped. May
   * call `append`.
   */
  readonly onRecovered?: (facts: { lost: number }) => void
  readonly files?: FileOperations
  /** The maximum number of lines kept while writing fails. Default 50,000. */
  readonly maxPendingLines?: number
  /**
   * The size of the ring buffer of waiting lines, a power of two. It also limits the lines that are
   * kept while writing fails. Default 8 MiB.
   */
  readonly ringBytes?: number
  /** Derives the ids of events and spans whose lines are made from templates. */
  readonly ids?: DerivedIds
  /** Starts a thread that writes the lines. Default: the calling thread writes them. */
  readonly startThread?: StartThread
  /** The number of written lines after which the thread is started. Default 2000. */
  readonly linesBeforeThread?: number
}

/** The `workerData` of the writer thread. */
export interface WriterThreadData {
  readonly memory: SharedArrayBuffer
  readonly fd: number
  readonly key: Int32Array
}

export interface WriterThreadListener {
  failed(): void
  /** Called once, when the thread has ended, or could not start. */
  ended(reason: string): void
}

export type StartThread = (data: WriterThreadData, listener: WriterThreadListener) => WriterThread

export type ResolvedWriterOptions = Required<
  Omit<CheckpointWriterOptions, 'beforeWrite' | 'startThread'>
> & {
  readonly beforeWrite: (() => void) | null
  readonly startThread: StartThread | null
}

export function resolveWriterOptions(options: CheckpointWriterOptions): ResolvedWriterOptions {
  const { clock, log, durability = 'os', onDegraded = () => {}, onRecovered = () => {} } = options
  const { lock = null, beforeWrite = null, startThread = null, ids } = options
  const { files = systemFiles, maxPendingLines = 50_000, ringBytes = 8 * 2 ** 20 } = options
  if (durability !== 'os' && durability !== 'fsync') {
    throw invalid('durability', '"os" or "fsync"', durability)
  }
  return {
    folder: expectString('folder', options.folder),
    // Must be a valid id, because it becomes part of a file name.
    sessionId: expectId('sessionId', options.sessionId),
    clock,
    log,
    durability,
    lock,
    beforeWrite,
    startThread,
    linesBeforeThread: options.linesBeforeThread ?? 2000,
    ids: ids ?? new DerivedIds(newIdKey()),
    onDegraded,
    onRecovered,
    files,
    ringBytes: expectInteger('ringBytes', ringBytes, { min: 4096 }),
    maxPendingLines: expectInteger('maxPendingLines', maxPendingLines, { min: 1 }),
  }
}
