/** A run may be a chain of files in one folder: each file names the file that it continues. */

import { closeSync, readSync, realpathSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { isRegularFile, openRegularFileSync } from '../foundation/regular-file.ts'
import { compressedSuffix, isCompressed } from './compressed.ts'
import { readFailure } from './files.ts'
import { type EventLine, parseLine } from './format.ts'
import { acquireLock, isBeingWritten, lockPathOf } from './lock.ts'
import { readBatches, standardInput } from './reader.ts'
import {
  parseRecordPath,
  type RecordFile,
  recordNameOf,
  recordsIn,
  recordSuffix,
  removeRecord,
  sortNewestFirst,
} from './record-names.ts'

/** The attribute of SessionStarted with the file name of the record that was resumed. */
export const resumedFrom = 'resumed_from'

export interface RecordChain {
  /** Absolute paths, oldest first; the last file is the requested one. */
  readonly files: readonly string[]
  /** The name of an earlier file that does not exist; the chain begins after that file. */
  readonly missing: string | null
}

/**
 * Finds all files of the run whose last file is `path`. Reads only the beginning of each file.
 * Rejects with `CheckpointError` when the last file cannot be read, or when the files name each
 * other in a cycle.
 */
export async function findChain(path: string): Promise<RecordChain> {
  // A pipe can be read only once.
  if (isPipe(path)) return { files: [path], missing: null }
  let file = absolutePath(path)
  const files = [file]
  for (;;) {
    const name = (await readSessionStart(file))?.attributes[resumedFrom]
    if (typeof name !== 'string') return { files, missing: null }
    const before = previousFileIn(dirname(file), name)
    if (before === null) return { files, missing: name }
    if (files.includes(before)) {
      throw new CheckpointError(`${before} says that it continues itself`, { path: before })
    }
    files.unshift(before)
    file = before
  }
}

/** Returns the SessionStarted event of a record; `null` if its first lines do not contain one. */
export async function readSessionStart(path: string): Promise<EventLine | null> {
  for await (const batch of readBatches(path)) {
    for (const line of batch) {
      if (line.section === 'event' && line.event_type === 'SessionStarted') return line
    }
    return null
  }
  return null
}

/** The number of bytes that are read to find which record a file continues. */
const headBytes = 65_536

interface RecordHead {
  /** Whether the file has no complete line: its process was killed before, or has just started. */
  readonly isEmpty: boolean
  /** The name of the record that this file continues. */
  readonly before: string | null
  /** `null` if the first lines of the file do not contain the id. */
  readonly sessionId: string | null
}

const noHead: RecordHead = { isEmpty: false, before: null, sessionId: null }

/** Reads as little as possible, because a folder may have thousands of records. Never rejects. */
export async function readHead(path: string): Promise<RecordHead> {
  try {
    const line = isCompressed(path) ? '' : readFirstLine(path)
    if (line === null) return { ...noHead, isEmpty: true }
    const parsed = parseLine(line)
    const first = parsed.kind === 'line' && parsed.line.section === 'event' ? parsed.line : null
    const isStart = first?.event_type === 'SessionStarted'
    const start = isStart ? first : await readSessionStart(path)
    const name = start?.attributes[resumedFrom]
    const before = typeof name === 'string' ? recordNameOf(name) : null
    return { isEmpty: false, before, sessionId: start?.session_id ?? null }
  } catch {
    // The reader of the record reports the error.
    return noHead
  }
}

/** `null` if no line is complete; empty if the first line is longer than the head. */
function readFirstLine(path: string): string | null {
  const fd = openRegularFileSync(path)
  try {
    const bytes = Buffer.allocUnsafe(headBytes)
    const length = readSync(fd, bytes, 0, headBytes, 0)
    const end = bytes.subarray(0, length).indexOf(0x0a)
    if (end === -1) return length < headBytes ? null : ''
    return bytes.toString('utf8', 0, end)
  } finally {
    closeSync(fd)
  }
}

/** Whether the file has no complete line and no live process that would write one. */
export async function isAbandoned(path: string): Promise<boolean> {
  const record = parseRecordPath(path)
  if (record !== null && isBeingWritten(dirname(path), record.sessionId)) return false
  return (await readHead(path)).isEmpty
}

/**
 * Finds the last file of the newest run among records of one session in one folder; `null` when no
 * file has a complete line. Follows the links between the files, because the times in their names
 * are wrong if the clock was set back.
 */
export async function findLastFile(records: readonly RecordFile[]): Promise<RecordFile | null> {
  const [newest] = records
  if (newest === undefined) return null
  const isWritten = isBeingWritten(dirname(newest.path), newest.sessionId)
  const usable: RecordFile[] = []
  const continued = new Set<string>()
  for (const record of sortNewestFirst(records)) {
    const { isEmpty, before } = await readHead(record.path)
    // An empty file is the newest one if a live process has just created it.
    if (isEmpty && !(isWritten && usable.length === 0)) continue
    // Copies of a record that is still being written are incomplete.
    if (!isWritten || record.copy === null) usable.push(record)
    if (before !== null && before !== recordNameOf(record.path)) continued.add(before)
  }
  return usable.find(({ path }) => !continued.has(recordNameOf(path))) ?? usable[0] ?? null
}

/** The error for a record whose process was killed before it wrote anything. */
export async function noFirstLine(path: string): Promise<CheckpointError> {
  const { sessionId } = parseRecordPath(path) ?? {}
  const ofSession = recordsIn(dirname(path)).filter((one) => one.sessionId === sessionId)
  const last = await findLastFile(ofSession)
  const isOther = last !== null && basename(last.path) !== basename(path)
  return new CheckpointError(`${path} does not have its first line: there is nothing to resume`, {
    code: 'CheckpointEmptyError',
    path,
    hint: isOther ? `Resume the last file of the run: ${last.path}` : 'Run the program again.',
  })
}

/**
 * Rejects with `CheckpointError` when another file already continues the record or an earlier file
 * of its run: a second continuation would split the run in two, and each would repeat work of the
 * other. Files without tasks, such as those of a refused submission, do not count.
 */
export async function expectNotContinued(path: string): Promise<void> {
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  const sessionId = (await readSessionStart(file))?.session_id
  if (sessionId === undefined) return
  const successors = await readSuccessors(dirname(file), sessionId)
  for (const [at, one] of files.toReversed().entries()) {
    const last = await findLastAfter(one, successors, new Set(files.map(recordNameOf)))
    if (last !== null) throw continuedError(file, last, at === 0 ? null : one)
  }
}

/** `before` is the file that both `file` and `last` continue. */
function continuedError(file: string, last: string, before: string | null): CheckpointError {
  const what = `${file} was continued by ${basename(last)}`
  const text = `${basename(last)} continues ${basename(before ?? '')} as well as ${basename(file)}`
  const resume = `Resume the last file of the run: ${last}`
  return new CheckpointError(before === null ? what : text, {
    code: 'CheckpointContinuedError',
    path: last,
    hint:
      before === null
        ? resume
        : `${resume}, or move it to another folder: both files cannot belong to one run.`,
  })
}

/**
 * Removes a record that continues another one but has no task, for example after a refused
 * submission, and its companion files, so that no run is resumed from it. Keeps a record that is in
 * use or cannot be removed. Returns whether the record was removed.
 */
export async function removeUnused(path: string): Promise<boolean> {
  if (!path.endsWith(recordSuffix)) return false
  try {
    const start = await readSessionStart(path)
    if (typeof start?.attributes[resumedFrom] !== 'string' || (await hasTasks(path))) return false
    const lock = acquireLock(lockPathOf(dirname(path), start.session_id))
    try {
      removeRecord(path)
      return !isRegularFile(path)
    } finally {
      lock.release()
    }
  } catch {
    return false
  }
}

interface Successor {
  readonly path: string
  /** The name of the record that this file continues. */
  readonly before: string
}

/** Lists the files of a session that continue another file. */
async function readSuccessors(folder: string, sessionId: string): Promise<readonly Successor[]> {
  const found: Successor[] = []
  const records = recordsIn(folder).filter((one) => one.sessionId === sessionId)
  for (const { path } of records.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const { before } = await readHead(path)
    if (before !== null) found.push({ path, before })
  }
  return found
}

/**
 * Finds the last file with tasks that continues `file`, directly or indirectly; `null` if there is
 * none. Follows the links between the files, not their times, because a clock may be set back.
 * Files of `own` are skipped.
 */
async function findLastAfter(
  file: string,
  successors: readonly Successor[],
  own: ReadonlySet<string>,
): Promise<string | null> {
  const seen = new Set(own)
  let last: string | null = null
  let names = new Set([recordNameOf(file)])
  while (names.size > 0) {
    const next = new Set<string>()
    for (const { path, before } of successors) {
      if (!names.has(before) || seen.has(recordNameOf(path))) continue
      seen.add(recordNameOf(path))
      next.add(recordNameOf(path))
      if (await hasTasks(path)) last = path
    }
    names = next
  }
  return last
}

/** Stops reading at the first task, which is usually close to the beginning. */
async function hasTasks(path: string): Promise<boolean> {
  for await (const batch of readBatches(path, { skipSpans: true })) {
    if (batch.some((line) => line.section === 'event' && line.task_id !== null)) return true
  }
  return false
}

/** Returns the path of the file `name`, which may have been compressed in the meantime. */
function previousFileIn(folder: string, name: string): string | null {
  if (basename(name) !== name) return null
  const path = join(folder, name)
  return [path, `${path}${compressedSuffix}`].find(isRegularFile) ?? null
}

/** Resolves symbolic links, because earlier files are in the folder of the real file. */
function absolutePath(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Whether the path is the standard input, and that is not a regular file. */
export const isPipe = (path: string): boolean => path === standardInput && !isRegularFile(path)
