/** Opens the record of an earlier run, to continue it: locks it, then reads it. */

import { realpathSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { expectNotContinued, noFirstLine, readSessionStart } from '../../checkpoint/chain.ts'
import { readFailure } from '../../checkpoint/files.ts'
import { acquireLock, type CheckpointLock, lockPathOf } from '../../checkpoint/lock.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { readRecord } from './read-record.ts'
import { Resumption } from './resumption.ts'
import type { ResolvedResumeOptions } from './resume-options.ts'

export interface OpenedRecord {
  readonly sessionId: string
  /** The folder for the next file of the run, and the name of the previous one. */
  readonly folder: string
  readonly fileName: string
  readonly resumption: Resumption
  /** Held from now on, because only one process may continue a record. */
  readonly lock: CheckpointLock
}

export interface OpenRecordParts {
  /** The id that the caller chose for the session, if any. */
  readonly ownId: string | null
  readonly clock: Clock
  readonly log: Log
}

/**
 * Rejects with a `CheckpointError` whose code is `CheckpointLockedError` while another process
 * writes or continues the record, and `CheckpointContinuedError` if one has done so; with a
 * `StateError` for a session with another id.
 */
export async function openResumption(
  file: string,
  options: ResolvedResumeOptions,
  { ownId, clock, log }: OpenRecordParts,
): Promise<OpenedRecord> {
  const path = realPath(file)
  const start = await readSessionStart(path)
  if (start === null) throw await noFirstLine(path)
  const { session_id: sessionId } = start
  if (ownId !== null && ownId !== sessionId) {
    throw new StateError(`the session has the id "${ownId}", and the record "${sessionId}"`, {
      code: 'ResumeRefusedError',
      hint: 'Leave `id` out, or give the id of the record.',
    })
  }
  const folder = dirname(path)
  const lock = acquireLock(lockPathOf(folder, sessionId), 'resume')
  try {
    // Checked after locking, so that no other process can continue it from now on.
    await expectNotContinued(path)
    const nextTurn = (): Promise<void> => new Promise((resolve) => clock.nextTurn(resolve))
    const record = await readRecord(path, { keepFailures: options.keepFailed, nextTurn })
    const resumption = new Resumption(record, options, log)
    return { sessionId, folder, fileName: basename(path), resumption, lock }
  } catch (error) {
    lock.release()
    throw error
  }
}

function realPath(file: string): string {
  try {
    return realpathSync(file)
  } catch (error) {
    throw readFailure('the record', file, error)
  }
}
