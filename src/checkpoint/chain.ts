/** A run may be a chain of files: each resumed one names its forerunner, which lies beside it. */

import { readdirSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CheckpointError } from '../foundation/errors.ts'
import { compressedSuffix } from './compressed.ts'
import { checkpointFailure } from './files.ts'
import type { EventLine } from './format.ts'
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
 * Rejects with `CheckpointError` when another file beside it continues the record: a second
 * continuation would split the run in two, and each would run what the other has done. A file that
 * was removed, or that has no task, as after a refused submission, continues nothing.
 */
export async function expectNotContinued(path: string): Promise<void> {
  const file = absolutePath(path)
  const sessionId = (await readSessionStart(file))?.session_id
  if (sessionId === undefined) return
  const last = await findLastAfter(file, await readSuccessors(dirname(file), sessionId))
  if (last === null) return
  throw new CheckpointError(`${file} was continued by ${basename(last)}`, {
    code: 'CheckpointContinuedError',
    path: last,
    hint: `Resume the last file of the run: ${last}`,
  })
}

const suffix = '.telemetry.jsonl'

interface Successor {
  readonly path: string
  /** The name of the record that it continues. */
  readonly before: string
  readonly time: number
}

/** The files of a session that continue another one, the oldest first. */
async function readSuccessors(folder: string, sessionId: string): Promise<readonly Successor[]> {
  const found: Successor[] = []
  for (const entry of readdirSync(folder)) {
    const path = join(folder, entry)
    const isRecord = recordName(entry).endsWith(suffix) && isFile(path)
    if (!entry.startsWith(`${sessionId}.`) || !isRecord) continue
    const start = await readSessionStart(path)
    const before = start?.attributes[resumedFrom]
    if (start === null || typeof before !== 'string') continue
    found.push({ path, before: recordName(before), time: start.event_time })
  }
  return found.toSorted((a, b) => a.time - b.time)
}

/** The latest file with tasks that continues this one, or one that does; `null` without any. */
async function findLastAfter(
  file: string,
  successors: readonly Successor[],
): Promise<string | null> {
  const names = new Set([recordName(file)])
  let last: string | null = null
  for (const { path, before } of successors) {
    if (!names.has(before) || names.has(recordName(path))) continue
    names.add(recordName(path))
    if (await hasTasks(path)) last = path
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
