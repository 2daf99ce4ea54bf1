/** A run may be a chain of files: each resumed one names the earlier file, which is beside it. */

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
  /** Absolute paths, the oldest first; the last one is the file that was asked for. */
  readonly files: readonly string[]
  /** The name of an earlier file that does not exist; the chain begins after it. */
  readonly missing: string | null
}

/**
 * The files of the run that ends with this one. Reads only the beginning of each. Rejects with
 * `CheckpointError` when the file itself cannot be read, or when the files name each other in a
 * cycle.
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

/** The event that opens a record; `null` when its first lines do not have it. */
export async function readSessionStart(path: string): Promise<EventLine | null> {
  for await (const batch of readBatches(path)) {
    for (const line of batch) {
      if (line.section === 'event' && line.event_type === 'SessionStarted') return line
    }
    return null
  }
  return null
}

/** How many bytes are read to find which record a file continues. */
const headBytes = 65_536

interface RecordHead {
  /** Whether it has no complete line: its process was killed before, or has just created it. */
  readonly isEmpty: boolean
  /** The name of the record that it continues. */
  readonly before: string | null
  /** `null` if its first lines do not say it. */
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

/** Whether it has no complete first line, and no live process that would write one. */
export async function isAbandoned(path: string): Promise<boolean> {
  const record = parseRecordPath(path)
  if (record !== null && isBeingWritten(dirname(path), record.sessionId)) return false
  return (await readHead(path)).isEmpty
}

/**
 * The last file of the newest run among records of one session in one folder; `null` when none has
 * a complete line. Uses the links between the files, because their names are wrong if the clock
 * went back.
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
 * Rejects with `CheckpointError` when another file continues the record or an earlier file of it: a
 * second continuation would split the run in two, and each would repeat work of the other. A file
 * that was removed, or that has no task, as after a refused submission, does not count.
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

/** `before` is the file that both continue. */
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
 * submission, and its companion files, so that no run is resumed from it. Returns whether it was
 * removed. A record that is in use or cannot be removed stays.
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
  /** The name of the record that it continues. */
  readonly before: string
}

/** The files of a session that continue another one. */
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
 * The last file with tasks that continues this one, directly or not; `null` if there is none. Uses
 * the links between the files, not their times, because a clock may go back. Files of `own` are
 * skipped.
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

/** Reads up to the first task, which follows soon after the start. */
async function hasTasks(path: string): Promise<boolean> {
  for await (const batch of readBatches(path, { skipSpans: true })) {
    if (batch.some((line) => line.section === 'event' && line.task_id !== null)) return true
  }
  return false
}

/** The path of the file called `name`, which may have been compressed since. */
function previousFileIn(folder: string, name: string): string | null {
  if (basename(name) !== name) return null
  const path = join(folder, name)
  return [path, `${path}${compressedSuffix}`].find(isRegularFile) ?? null
}

/** Resolves symbolic links, because earlier files are beside the file itself. */
function absolutePath(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Whether it is the standard input, unless that is a regular file. */
export const isPipe = (path: string): boolean => path === standardInput && !isRegularFile(path)
