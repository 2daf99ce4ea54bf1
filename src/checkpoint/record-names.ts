/** The file names of records: they contain session, start time, and whether a file is a copy. */

import { type Dirent, readdirSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { isRegularFile, statOf } from '../foundation/regular-file.ts'

export const recordSuffix = '.telemetry.jsonl'

/** A file with the name of a record. */
export interface RecordFile {
  readonly path: string
  readonly sessionId: string
  /** The start of the session, in seconds; `count` numbers the files of the same second. */
  readonly seconds: number
  readonly count: number
  readonly copy: 'repaired' | 'compressed' | null
}

/** `<session_id>.<unix seconds>[-N][.repaired].telemetry.jsonl`, with `.zst` if compressed. */
const nameForm = /^(.+)\.(\d+)(?:-(\d+))?(\.repaired)?\.telemetry\.jsonl(\.zst)?$/

/** Returns `null` for a file that is not named like a record. */
export function parseRecordPath(path: string): RecordFile | null {
  const [, sessionId, seconds, count = '1', repaired, zst] = nameForm.exec(basename(path)) ?? []
  if (sessionId === undefined) return null
  const copy = repaired !== undefined ? 'repaired' : zst !== undefined ? 'compressed' : null
  return { path, sessionId, seconds: Number(seconds), count: Number(count), copy }
}

/** Returns an empty list if the folder does not exist. */
export function recordsIn(folder: string): RecordFile[] {
  return filesIn(folder).flatMap((name) => parseRecordPath(join(folder, name)) ?? [])
}

/** Lists regular files only, not folders, pipes or devices. */
function filesIn(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true })
    return entries.filter((entry) => isRegular(folder, entry)).map(({ name }) => name)
  } catch {
    return []
  }
}

function isRegular(folder: string, entry: Dirent): boolean {
  return entry.isSymbolicLink() ? isRegularFile(join(folder, entry.name)) : entry.isFile()
}

/** The name that a record and its repaired and compressed copies have in common. */
export const recordNameOf = (path: string): string =>
  basename(path.replace(/\.zst$/, '')).replace(`.repaired${recordSuffix}`, recordSuffix)

/** The repaired copy comes first, because the record itself cannot be resumed then. */
const copyOrder = { repaired: 0, record: 1, compressed: 2 } as const
const orderOf = ({ copy }: RecordFile): number => copyOrder[copy ?? 'record']

/** Sorts by the time in the name, and within a second by number or modification time. */
export function sortNewestFirst(records: readonly RecordFile[]): RecordFile[] {
  return records.toSorted(
    (a, b) =>
      b.seconds - a.seconds ||
      (a.sessionId === b.sessionId ? b.count - a.count : changedAt(b) - changedAt(a)) ||
      orderOf(a) - orderOf(b) ||
      (a.path < b.path ? -1 : 1),
  )
}

const changedAt = ({ path }: RecordFile): number => statOf(path)?.mtimeMs ?? 0

/** Removes a record and its companion files. Never throws. */
export function removeRecord(path: string): void {
  const stem = path.slice(0, -recordSuffix.length)
  if (!path.endsWith(recordSuffix)) return
  try {
    for (const ending of [recordSuffix, '.results', '.run']) rmSync(stem + ending, { force: true })
  } catch {
    // A file that cannot be removed stays; readers skip an empty record.
  }
}

const requestForm = /^(.+)\.[^.]+\.request$/

/**
 * The folder in which a command asks the writer of a record for the output of a running program,
 * and receives it. It is next to the record, the only path that both processes know, and exists
 * while a command follows a program.
 */
export const followFolderOf = (record: string): string =>
  `${record.endsWith(recordSuffix) ? record.slice(0, -recordSuffix.length) : record}.follow`

/** A valid uid needs no escaping, but a damaged record may contain any text. */
const nameOf = (uid: string): string => encodeURIComponent(uid)

/** Each command has its own file and touches it regularly while the request is valid. */
export const requestPath = (folder: string, uid: string, command: string): string =>
  join(folder, `${nameOf(uid)}.${command}.request`)

/** Returns the uid of a request file; `null` for any other file. */
export const requestedUid = (name: string): string | null => requestForm.exec(name)?.[1] ?? null

export const outputPath = (folder: string, uid: string, stream: 'stdout' | 'stderr'): string =>
  join(folder, `${nameOf(uid)}.${stream}`)
