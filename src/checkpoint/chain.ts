/** A run may be a chain of files: each resumed one names its forerunner, which lies beside it. */

import { closeSync, openSync, readSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { compressedSuffix, isCompressed } from './compressed.ts'
import { readFailure } from './files.ts'
import { type EventLine, parseLine } from './format.ts'
import { acquireLock, isBeingWritten, lockPathOf } from './lock.ts'
import { readBatches } from './reader.ts'
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
  /** A forerunner that is named but not there: the chain begins after it. */
  readonly missing: string | null
}

/**
 * The files of the run that ends with this one. Reads only the head of each. Rejects with
 * `CheckpointError` when the file itself cannot be read, or when files name each other in a ring.
 */
export async function findChain(path: string): Promise<RecordChain> {
  // What is no plain file, such as a pipe, can be read once only.
  if (isPipe(path)) return { files: [path], missing: null }
  let file = absolutePath(path)
  const files = [file]
  for (;;) {
    const name = (await readSessionStart(file))?.attributes[resumedFrom]
    if (typeof name !== 'string') return { files, missing: null }
    const before = forerunnerIn(dirname(file), name)
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

/** How much of a record is read to know which one it continues. */
const headBytes = 65_536

interface RecordHead {
  /** It has no whole line: its process was killed before, or has just made it. */
  readonly isEmpty: boolean
  /** The name of the record that it continues. */
  readonly before: string | null
}

const noHead: RecordHead = { isEmpty: false, before: null }

/** Reads as little as possible: a folder may have thousands of records. Never rejects. */
async function readHead(path: string): Promise<RecordHead> {
  try {
    if (!isFile(path)) return noHead
    const line = isCompressed(path) ? '' : readFirstLine(path)
    if (line === null) return { isEmpty: true, before: null }
    const parsed = parseLine(line)
    const first = parsed.kind === 'line' && parsed.line.section === 'event' ? parsed.line : null
    const isStart = first?.event_type === 'SessionStarted'
    const name = (isStart ? first : await readSessionStart(path))?.attributes[resumedFrom]
    return { isEmpty: false, before: typeof name === 'string' ? recordNameOf(name) : null }
  } catch {
    // Whoever reads the record says what is wrong with it.
    return noHead
  }
}

/** `null` if there is none; empty if it is longer than the head. */
function readFirstLine(path: string): string | null {
  const fd = openSync(path, 'r')
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

/** Whether it has no whole first line, and no live process that is about to write one. */
export async function isAbandoned(path: string): Promise<boolean> {
  const record = parseRecordPath(path)
  if (record !== null && isBeingWritten(dirname(path), record.sessionId)) return false
  return (await readHead(path)).isEmpty
}

/**
 * The last file of the newest run among records of one session in one folder; `null` when none has
 * a whole line. By what the files say that they continue: their names go back when a clock does.
 */
export async function findLastFile(records: readonly RecordFile[]): Promise<RecordFile | null> {
  const [newest] = records
  if (newest === undefined) return null
  const isWritten = isBeingWritten(dirname(newest.path), newest.sessionId)
  const usable: RecordFile[] = []
  const continued = new Set<string>()
  for (const record of sortNewestFirst(records)) {
    const { isEmpty, before } = await readHead(record.path)
    // The file that a live process has just made is the newest.
    if (isEmpty && !(isWritten && usable.length === 0)) continue
    // A record that grows is not what its copies are.
    if (!isWritten || record.copy === null) usable.push(record)
    if (before !== null && before !== recordNameOf(record.path)) continued.add(before)
  }
  return usable.find(({ path }) => !continued.has(recordNameOf(path))) ?? usable[0] ?? null
}

/** The refusal of a record whose process was killed before it wrote anything. */
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
 * Rejects with `CheckpointError` when another file continues the record or one of its forerunners:
 * a second continuation would split the run in two, and each would run what the other has done. A
 * file that was removed, or that has no task, as after a refused submission, continues nothing.
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

/** `before`: the forerunner of both. */
function continuedError(file: string, last: string, before: string | null): CheckpointError {
  const what = `${file} was continued by ${basename(last)}`
  const text = `${basename(last)} continues ${basename(before ?? '')} as well as ${basename(file)}`
  const resume = `Resume the last file of the run: ${last}`
  return new CheckpointError(before === null ? what : text, {
    code: 'CheckpointContinuedError',
    path: last,
    hint: before === null ? resume : `${resume}, or move that away: both are not one run.`,
  })
}

/**
 * Removes a record that continues another one and has no task, and what lies beside it, such as
 * after a refused submission: nobody should go on from there. Returns whether it was removed. A
 * record that is in use or cannot be removed stays.
 */
export async function removeUnused(path: string): Promise<boolean> {
  if (!path.endsWith(recordSuffix)) return false
  try {
    const start = await readSessionStart(path)
    if (typeof start?.attributes[resumedFrom] !== 'string' || (await hasTasks(path))) return false
    const lock = acquireLock(lockPathOf(dirname(path), start.session_id))
    try {
      removeRecord(path)
      return !isFile(path)
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
 * The farthest file with tasks that continues this one, directly or not; `null` without any. By
 * what the files name, not by their times: clocks go back. Those of `own` are not asked for.
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

/** Reads up to the first task, which soon follows the start. */
async function hasTasks(path: string): Promise<boolean> {
  for await (const batch of readBatches(path, { skipSpans: true })) {
    if (batch.some((line) => line.section === 'event' && line.task_id !== null)) return true
  }
  return false
}

/** Where the file lies that `name` stands for; it may have been compressed since. */
function forerunnerIn(folder: string, name: string): string | null {
  if (basename(name) !== name) return null
  const path = join(folder, name)
  return [path, `${path}${compressedSuffix}`].find(isFile) ?? null
}

/** Links are resolved: forerunners lie beside the file itself. */
function absolutePath(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    throw readFailure('the record', path, error)
  }
}

/** Whether it is there, and neither a plain file nor a folder. */
export function isPipe(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat !== undefined && !stat.isFile() && !stat.isDirectory()
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false
}
