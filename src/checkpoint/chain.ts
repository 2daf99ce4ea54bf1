/** Finds the files of a run. Each resumed session writes a file that names the previous file. */

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
  listRecords,
  recordSuffix,
  removeRecord,
  sortNewestFirst,
} from './record-names.ts'

/** The attribute of SessionStarted that contains the file name of the resumed record. */
export const resumedFromKey = 'resumed_from'

export interface RecordChain {
  /** The absolute paths of the files, oldest first. The last file is the requested one. */
  readonly files: readonly string[]
  /** The name of an earlier file that does not exist; `null` if no file is missing. */
  readonly missing: string | null
}

/**
 * Finds all files of the run that ends with the file `path`. Reads only the beginning of each file.
 * Rejects with `CheckpointError` if `path` cannot be read, or if the files form a cycle.
 */
export async function findChain(path: string): Promise<RecordChain> {
  // A pipe can be read only once, so the files before it are not looked up.
  if (isPipe(path)) return { files: [path], missing: null }
  let file = resolveRealPath(path)
  const files = [file]
  for (;;) {
    const name = (await readSessionStart(file))?.attributes[resumedFromKey]
    if (typeof name !== 'string') return { files, missing: null }
    const before = findPreviousFile(dirname(file), name)
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

const headBytes = 65_536

interface RecordHead {
  /**
   * Whether the file has no complete line: the process that writes it was killed or has just
   * started.
   */
  readonly isEmpty: boolean
  /** The name of the record that this file continues; `null` if it continues none. */
  readonly previous: string | null
  /** The session id of the file; `null` if its first lines do not contain it. */
  readonly sessionId: string | null
}

const unknownHead: RecordHead = { isEmpty: false, previous: null, sessionId: null }

/**
 * Reads the beginning of a record. Reads as little as possible, because a folder may have thousands
 * of records. Never rejects.
 */
export async function readRecordHead(path: string): Promise<RecordHead> {
  try {
    const line = isCompressed(path) ? '' : readFirstLine(path)
    if (line === null) return { ...unknownHead, isEmpty: true }
    const parsed = parseLine(line)
    const first = parsed.kind === 'line' && parsed.line.section === 'event' ? parsed.line : null
    const isStart = first?.event_type === 'SessionStarted'
    const start = isStart ? first : await readSessionStart(path)
    const name = start?.attributes[resumedFromKey]
    const previous = typeof name === 'string' ? recordNameOf(name) : null
    return { isEmpty: false, previous, sessionId: start?.session_id ?? null }
  } catch {
    // The error is ignored here, because the reader of the record reports it.
    return unknownHead
  }
}

/** Returns the first line; `null` if no line is complete, `''` if it exceeds `headBytes`. */
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

/** Whether the file has no complete line, and no live process writes to it. */
export async function willStayEmpty(path: string): Promise<boolean> {
  const record = parseRecordPath(path)
  if (record !== null && isBeingWritten(dirname(path), record.sessionId)) return false
  return (await readRecordHead(path)).isEmpty
}

/**
 * Finds the last file of a session's newest run; `null` if no file has a complete line. Uses the
 * name of the previous file in each record, because the times in file names are wrong if the clock
 * was set back.
 */
export async function findLastFile(records: readonly RecordFile[]): Promise<RecordFile | null> {
  const [newest] = records
  if (newest === undefined) return null
  const isWritten = isBeingWritten(dirname(newest.path), newest.sessionId)
  const usable: RecordFile[] = []
  const continued = new Set<string>()
  for (const record of sortNewestFirst(records)) {
    const { isEmpty, previous } = await readRecordHead(record.path)
    // Skips empty files, except for the newest one if a live process may have just created it.
    if (isEmpty && !(isWritten && usable.length === 0)) continue
    // Copies are not used while the record is being written, because they are incomplete.
    if (!isWritten || record.copy === null) usable.push(record)
    if (previous !== null && previous !== recordNameOf(record.path)) continued.add(previous)
  }
  return usable.find(({ path }) => !continued.has(recordNameOf(path))) ?? usable[0] ?? null
}

/** Creates the error for a record whose process was killed before it wrote a line. */
export async function emptyRecordError(path: string): Promise<CheckpointError> {
  const { sessionId = '' } = parseRecordPath(path) ?? {}
  const last = await findLastFile(listSessionRecords(dirname(path), sessionId))
  const isOther = last !== null && basename(last.path) !== basename(path)
  return new CheckpointError(`${path} does not have its first line: there is nothing to resume`, {
    code: 'CheckpointEmptyError',
    path,
    hint: isOther ? `Resume the last file of the run: ${last.path}` : 'Run the program again.',
  })
}

/**
 * Rejects with `CheckpointError` if another file already continues the record or an earlier file of
 * its run, because a second continuation would repeat the work of the first one. Ignores files
 * without tasks, such as the file of a refused submission.
 */
export async function expectNotContinued(path: string): Promise<void> {
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  const sessionId = (await readSessionStart(file))?.session_id
  if (sessionId === undefined) return
  const successors = await readSuccessors(dirname(file), sessionId)
  for (const [at, one] of files.toReversed().entries()) {
    const last = await findLastSuccessor(one, successors, new Set(files.map(recordNameOf)))
    if (last !== null) throw continuedError(file, last, at === 0 ? null : one)
  }
}

/**
 * Creates the error for a record that cannot be continued. `before` is the file that both `file`
 * and `last` continue; `null` if `last` continues `file`.
 */
function continuedError(file: string, last: string, before: string | null): CheckpointError {
  const [message, rest] =
    before === null
      ? [`${file} was continued by ${basename(last)}`, '']
      : [
          `${basename(last)} continues ${basename(before)} as well as ${basename(file)}`,
          ', or move it to another folder: both files cannot belong to one run.',
        ]
  const hint = `Resume the last file of the run: ${last}${rest}`
  return new CheckpointError(message, { code: 'CheckpointContinuedError', path: last, hint })
}

/**
 * Removes a record that continues another one but has no task, for example after a refused
 * submission. Keeps a record that is in use. Returns whether the record was removed.
 */
export async function removeUnusedRecord(path: string): Promise<boolean> {
  if (!path.endsWith(recordSuffix)) return false
  try {
    const start = await readSessionStart(path)
    if (typeof start?.attributes[resumedFromKey] !== 'string' || (await hasTasks(path)))
      return false
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
  readonly previous: string
}

const listSessionRecords = (folder: string, sessionId: string): RecordFile[] =>
  listRecords(folder).filter((one) => one.sessionId === sessionId)

async function readSuccessors(folder: string, sessionId: string): Promise<readonly Successor[]> {
  const found: Successor[] = []
  const records = listSessionRecords(folder, sessionId)
  for (const { path } of records.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const { previous } = await readRecordHead(path)
    if (previous !== null) found.push({ path, previous })
  }
  return found
}

/** Finds the last file with tasks that continues `file`, directly or indirectly. */
async function findLastSuccessor(
  file: string,
  successors: readonly Successor[],
  skippedNames: ReadonlySet<string>,
): Promise<string | null> {
  const seen = new Set(skippedNames)
  let last: string | null = null
  let names = new Set([recordNameOf(file)])
  while (names.size > 0) {
    const next = new Set<string>()
    for (const { path, previous } of successors) {
      if (!names.has(previous) || seen.has(recordNameOf(path))) continue
      seen.add(recordNameOf(path))
      next.add(recordNameOf(path))
      if (await hasTasks(path)) last = path
    }
    names = next
  }
  return last
}

async function hasTasks(path: string): Promise<boolean> {
  for await (const batch of readBatches(path, { skipSpans: true })) {
    if (batch.some((line) => line.section === 'event' && line.task_id !== null)) return true
  }
  return false
}

function findPreviousFile(folder: string, name: string): string | null {
  if (basename(name) !== name) return null
  const path = join(folder, name)
  return [path, `${path}${compressedSuffix}`].find(isRegularFile) ?? null
}

/** Resolves symbolic links, because earlier files are in the folder of the real file. */
function resolveRealPath(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Whether the path is the standard input and the standard input is not a regular file. */
export const isPipe = (path: string): boolean => path === standardInput && !isRegularFile(path)
