/** What a checkpoint writer can be told, and the check of it. */

import type { Clock } from '../foundation/clock.ts'
import type { Log } from '../foundation/log.ts'
import { expectId, expectInteger, expectString, invalid } from '../foundation/options.ts'
import { nodeFiles, type FileOperations } from './file-operations.ts'

export interface CheckpointWriterOptions {
  /** Made, with what leads to it, when missing. */
  readonly folder: string
  readonly sessionId: string
  readonly clock: Clock
  readonly log: Log
  /** What a flushed line survives: a kill (`os`, default) or also a power loss (`fsync`). */
  readonly durability?: 'os' | 'fsync'
  /** Writing failed for the first time since it last worked. May call `append`. */
  readonly onDegraded?: (facts: { errno: string; lines_pending: number }) => void
  /** All that was kept is on file; `lost` lines of this episode are not. May call `append`. */
  readonly onRecovered?: (facts: { lost: number }) => void
  readonly files?: FileOperations
  /** Lines kept while writing fails; the oldest are lost beyond it. Default 50,000. */
  readonly maxPendingLines?: number
  /** Bytes kept while writing fails. Default 16 MiB. */
  readonly maxPendingBytes?: number
}

export interface ResolvedWriterOptions {
  readonly folder: string
  readonly sessionId: string
  readonly clock: Clock
  readonly log: Log
  readonly durability: 'os' | 'fsync'
  readonly onDegraded: NonNullable<CheckpointWriterOptions['onDegraded']>
  readonly onRecovered: NonNullable<CheckpointWriterOptions['onRecovered']>
  readonly files: FileOperations
  readonly pendingLimit: { readonly lines: number; readonly bytes: number }
}

/** Fills the defaults; throws `ValueError` for what cannot be. */
export function resolveWriterOptions(options: CheckpointWriterOptions): ResolvedWriterOptions {
  const { clock, log, durability = 'os', onDegraded = () => {}, onRecovered = () => {} } = options
  const { files = nodeFiles, maxPendingLines = 50_000, maxPendingBytes = 16 * 2 ** 20 } = options
  if (durability !== 'os' && durability !== 'fsync') {
    throw invalid('durability', '"os" or "fsync"', durability)
  }
  return {
    folder: expectString('folder', options.folder),
    // It becomes a part of a file name, so it is checked here again, whoever checked it before.
    sessionId: expectId('sessionId', options.sessionId),
    clock,
    log,
    durability,
    onDegraded,
    onRecovered,
    files,
    pendingLimit: {
      lines: expectInteger('maxPendingLines', maxPendingLines, { min: 1 }),
      bytes: expectInteger('maxPendingBytes', maxPendingBytes, { min: 1 }),
    },
  }
}
