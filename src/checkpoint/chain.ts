/** A run may be a chain of files: each resumed one names its forerunner, which lies beside it. */

import { readdirSync, realpathSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { compressedSuffix } from './compressed.ts'
import { checkpointFailure } from './files.ts'
import type { EventLine } from './format.ts'
import { acquireLock, lockPathOf } from './lock.ts'
import { readBatches } from './reader.ts'

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
      throw new CheckpointError(`${before} is its own forerunner`, { path: before })
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
    const last = await findLastAfter(one, successors, new Set(files.map(recordName)))
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
  if (!path.endsWith(suffix)) return false
  try {
    const start = await readSessionStart(path)
    if (typeof start?.attributes[resumedFrom] !== 'string' || (await hasTasks(path))) return false
    const lock = acquireLock(lockPathOf(dirname(path), start.session_id))
    try {
      const stem = path.slice(0, -suffix.length)
      for (const ending of [suffix, '.results', '.run']) rmSync(stem + ending, { force: true })
      return true
    } finally {
      lock.release()
    }
  } catch {
    return false
  }
}

const suffix = '.telemetry.jsonl'

interface Successor {
  readonly path: string
  /** The name of the record that it continues. */
  readonly before: string
}

/** The files of a session that continue another one. */
async function readSuccessors(folder: string, sessionId: string): Promise<readonly Successor[]> {
  const found: Successor[] = []
  for (const entry of readdirSync(folder).toSorted()) {
    const path = join(folder, entry)
    const isRecord = recordName(entry).endsWith(suffix) && isFile(path)
    if (!entry.startsWith(`${sessionId}.`) || !isRecord) continue
    const start = await readSessionStart(path)
    const before = start?.attributes[resumedFrom]
    if (start === null || typeof before !== 'string') continue
    found.push({ path, before: recordName(before) })
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
  let names = new Set([recordName(file)])
  while (names.size > 0) {
    const next = new Set<string>()
    for (const { path, before } of successors) {
      if (!names.has(before) || seen.has(recordName(path))) continue
      seen.add(recordName(path))
      next.add(recordName(path))
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

/** A repaired or compressed copy is the same record. */
const recordName = (path: string): string =>
  basename(path.replace(/\.zst$/, '')).replace(`.repaired${suffix}`, suffix)

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
    throw checkpointFailure('read the record', path, error)
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
