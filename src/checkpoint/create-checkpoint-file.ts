/** Makes a session's new checkpoint file, and never touches one that is there. Writes nothing. */

import { closeSync, constants, fsyncSync, openSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { CheckpointError, errnoOf } from '../foundation/errors.ts'
import { checkpointFailure } from './checkpoint-failure.ts'
import type { FileOperations } from './file-operations.ts'
import { makeFolders } from './make-folders.ts'

/** Seconds that are tried when names are taken. */
const mostNames = 1000
const flags =
  constants.O_CREAT |
  constants.O_EXCL |
  constants.O_APPEND |
  constants.O_WRONLY |
  constants.O_NOFOLLOW

/** Makes the folder and what leads to it; returns its absolute path. */
export function createFolder(folder: string): string {
  try {
    const path = resolve(folder)
    makeFolders(path)
    return path
  } catch (error) {
    throw checkpointFailure('make the checkpoint folder', folder, error)
  }
}

/** Opens the first free `<session_id>.<unix seconds>.telemetry.jsonl` from `seconds` on. */
export function createCheckpointFile(
  files: FileOperations,
  folder: string,
  sessionId: string,
  seconds: number,
): { readonly fd: number; readonly path: string } {
  const first = Math.floor(seconds)
  for (let second = first; second < first + mostNames; second++) {
    const path = join(folder, `${sessionId}.${second}.telemetry.jsonl`)
    try {
      return { fd: files.open(path, flags, 0o644), path }
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw checkpointFailure('open the checkpoint', path, error)
    }
  }
  throw new CheckpointError(`Cannot open a checkpoint in ${folder}: ${mostNames} names are taken`, {
    path: folder,
    errno: 'EEXIST',
    hint: 'Use another session id or folder.',
  })
}

/** Makes the new name itself survive a power loss, where the file system can. */
export function syncFolder(folder: string): void {
  let fd: number | undefined
  try {
    fd = openSync(folder, 'r')
    fsyncSync(fd)
  } catch {
    // Not every file system syncs a folder; the file's own syncs are the promise.
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}
