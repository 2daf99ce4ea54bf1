/** The system calls that write a checkpoint (folders, files, syncs), and hints for their errors. */

import { closeSync, constants, fdatasync, fsyncSync, ftruncateSync, mkdirSync } from 'node:fs'
import { openSync, writeSync } from 'node:fs'
import { type FileHandle, lstat, open, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { CheckpointError, errnoOf, messageOf } from '../foundation/errors.ts'
import { statOf } from '../foundation/regular-file.ts'

/** The system calls that write a checkpoint. Tests replace them to simulate disk failures. */
export interface FileOperations {
  open(path: string, flags: number, mode: number): number
  /** Writes up to `length` bytes from `offset`. Returns how many were written, perhaps fewer. */
  write(fd: number, bytes: Uint8Array, offset: number, length: number): number
  fdatasync(fd: number): Promise<void>
  truncate(fd: number, length: number): void
  close(fd: number): void
}

export const systemFiles: FileOperations = {
  open: openSync,
  write: writeSync,
  fdatasync: promisify(fdatasync),
  truncate: ftruncateSync,
  close: closeSync,
}

const maxWriteAttempts = 100

/** Writes at least one byte, or throws the system's error. */
export function writeSome(
  files: Pick<FileOperations, 'write'>,
  fd: number,
  slice: { readonly bytes: Uint8Array; readonly offset: number; readonly length: number },
): number {
  for (let repeats = 0; repeats < maxWriteAttempts; repeats++) {
    try {
      const written = files.write(fd, slice.bytes, slice.offset, slice.length)
      if (written > 0) return written
    } catch (error) {
      const errno = errnoOf(error)
      if (errno !== 'EINTR' && errno !== 'EAGAIN') throw error
    }
  }
  throw Object.assign(new Error('no byte was written'), { code: 'EAGAIN' })
}

/** Syncs a file after each write. Writes that happen during a sync share the next sync. */
export class GroupCommit {
  readonly #sync: () => Promise<void>
  readonly #onFailure: (error: unknown) => void
  #writes = 0
  #syncedWrites = 0
  #running: Promise<void> | undefined
  #failure: { readonly error: unknown } | undefined

  constructor(sync: () => Promise<void>, onFailure: (error: unknown) => void) {
    this.#sync = sync
    this.#onFailure = onFailure
  }

  requestSync(): void {
    this.#writes++
    void this.#startSync()
  }

  /**
   * Resolves after a sync that began after the last write. Rejects if any sync has failed, because
   * the system may have dropped the bytes of that sync, and a later sync does not write them.
   */
  async whenSynced(): Promise<void> {
    const target = this.#writes
    while (this.#syncedWrites < target) await this.#startSync()
    if (this.#failure !== undefined) throw this.#failure.error
  }

  #startSync(): Promise<void> {
    this.#running ??= this.#syncOnce()
    return this.#running
  }

  async #syncOnce(): Promise<void> {
    const writesBefore = this.#writes
    try {
      await this.#sync()
    } catch (error) {
      if (this.#failure === undefined) this.#onFailure(error)
      this.#failure ??= { error }
    }
    this.#running = undefined
    this.#syncedWrites = writesBefore
    if (this.#writes > writesBefore) void this.#startSync()
  }
}

/** The maximum number of records that one session can create in one second. */
const maxFileNames = 1000
/** The flags for creating a file that must not exist, without following a symbolic link. */
export const newFileFlags =
  constants.O_CREAT |
  constants.O_EXCL |
  constants.O_APPEND |
  constants.O_WRONLY |
  constants.O_NOFOLLOW

/** Creates the folder with its parents, and returns its absolute path. */
export function createFolder(folder: string): string {
  try {
    const path = resolve(folder)
    makeFolders(path)
    return path
  } catch (error) {
    throw checkpointFailure('make the folder of the record', folder, error)
  }
}

/**
 * Creates `<session_id>.<unix seconds>.telemetry.jsonl`. Further files of the same second have
 * `-2`, `-3` and so on before the suffix. Never opens an existing file.
 */
export function createCheckpointFile(
  files: FileOperations,
  folder: string,
  sessionId: string,
  seconds: number,
): { readonly fd: number; readonly path: string } {
  const stem = join(folder, `${sessionId}.${Math.floor(seconds)}`)
  for (let count = 1; count <= maxFileNames; count++) {
    const path = `${stem}${count === 1 ? '' : `-${count}`}.telemetry.jsonl`
    try {
      return { fd: files.open(path, newFileFlags, 0o644), path }
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw checkpointFailure('open the record', path, error)
    }
  }
  throw new CheckpointError(`Cannot open a record in ${folder}: ${maxFileNames} names are taken`, {
    path: folder,
    errno: 'EEXIST',
    hint: 'Use another session id or folder.',
  })
}

/** Syncs the folder, so that new file names survive a power loss. */
export function syncFolder(folder: string): void {
  let fd: number | undefined
  try {
    fd = openSync(folder, 'r')
    fsyncSync(fd)
  } catch {
    // Some file systems cannot sync a folder.
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/**
 * Creates a folder and its parents. All of them may already exist. Does not use `mkdir` with
 * `recursive`, which never returns if an existing folder cannot contain others, as in /proc.
 */
export function makeFolders(path: string): void {
  if (isFolder(path)) return
  try {
    makeFolder(path)
  } catch (error) {
    const parent = dirname(path)
    if (errnoOf(error) !== 'ENOENT' || parent === path) throw error
    makeFolders(parent)
    makeFolder(path)
  }
}

function makeFolder(path: string): void {
  try {
    mkdirSync(path)
  } catch (error) {
    if (!isFolder(path)) throw error
  }
}

const isFolder = (path: string): boolean => statOf(path)?.isDirectory() === true

interface CopyPaths {
  /** The text after "Cannot" in the error message. */
  readonly action: string
  readonly path: string
  readonly target: string
}

/**
 * Creates the file `target`, which gets its name only after `write` has finished. Never overwrites
 * a file. Rejects with `CheckpointError`.
 */
export async function writeCopy<Result>(
  { action, path, target }: CopyPaths,
  write: (file: FileHandle) => Promise<Result>,
): Promise<Result> {
  const draft = `${target}.${process.pid}.tmp`
  try {
    if ((await lstat(target).catch(() => null)) !== null) {
      const hint = 'Remove it first to write it again.'
      throw new CheckpointError(`${target} exists already`, { path: target, errno: 'EEXIST', hint })
    }
    const file = await open(draft, 'wx+')
    try {
      const result = await write(file)
      await file.sync()
      await rename(draft, target)
      return result
    } finally {
      await file.close()
    }
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw checkpointFailure(action, path, error)
  }
}

export const readAccessHint = 'Give this user read access to it, or ask its owner.'

const writeHints: Readonly<Record<string, string>> = {
  EACCES: 'Give this user write access to the folder, or choose another one.',
  EPERM: 'Give this user write access to the folder, or choose another one.',
  EROFS: 'The file system is read-only: choose another folder.',
  ENOSPC: 'The disk is full: free some space, or choose another folder.',
  EDQUOT: 'The quota is used up: free some space, or choose another folder.',
  ENOENT: 'Check the path: a part of it does not exist.',
  ENOTDIR: 'Check the path: a part of it is not a folder.',
  EEXIST: 'A file has this name: choose another one.',
  EISDIR: 'This is a folder: name a file in it.',
  ELOOP: 'Symbolic links are not followed here: name the real path.',
  ENAMETOOLONG: 'Choose a shorter folder or session id.',
}

const readHints: Readonly<Record<string, string>> = {
  ...writeHints,
  EACCES: readAccessHint,
  EPERM: readAccessHint,
  ELOOP: 'Check the path: a symbolic link in it leads back to itself.',
  ENAMETOOLONG: 'Check the path: a name in it is longer than the system allows.',
  ENOTSUP: 'Name a regular file. Commands that read a record also take - for the standard input.',
}

/**
 * Converts a system error to a `CheckpointError` with path, errno and hint. `action` is the text
 * after "Cannot" in the message. Returns a `CheckpointError` unchanged.
 */
export const checkpointFailure = (action: string, path: string, cause: unknown): CheckpointError =>
  toCheckpointError(`Cannot ${action}`, path, cause, writeHints)

/**
 * Like `checkpointFailure`, for reading a file. `what` is the text after "Cannot read" in the
 * message.
 */
export const readFailure = (what: string, path: string, cause: unknown): CheckpointError =>
  toCheckpointError(`Cannot read ${what}`, path, cause, readHints)

function toCheckpointError(
  start: string,
  path: string,
  cause: unknown,
  known: Readonly<Record<string, string>>,
): CheckpointError {
  if (CheckpointError.isInstance(cause)) return cause
  const errno = errnoOf(cause)
  const hint = known[errno]
  return new CheckpointError(`${start} ${path}: ${messageOf(cause)}`, {
    path,
    errno,
    cause,
    ...(hint === undefined ? {} : { hint }),
  })
}
