/** The names of record files, which contain the session and its start time. */

import { type Dirent, readdirSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { isRegularFile, statOf } from '../foundation/regular-file.ts'

export const recordSuffix = '.telemetry.jsonl'

export interface RecordFile {
  readonly path: string
  readonly sessionId: string
  /** The start of the session, in seconds since the epoch. */
  readonly seconds: number
  /** The number of the file among the files of the same second, from 1. */
  readonly count: number
  readonly copy: 'repaired' | 'compressed' | null
}

/**
 * Matches `<session_id>.<unix seconds>[-N][.repaired].telemetry.jsonl`, with `.zst` if compressed.
 */
const recordNamePattern = /^(.+)\.(\d+)(?:-(\d+))?(\.repaired)?\.telemetry\.jsonl(\.zst)?$/

/** Parses the name of a record file. Returns `null` for other file names. */
export function parseRecordPath(path: string): RecordFile | null {
  const [, sessionId, seconds, count = '1', repaired, zst] =
    recordNamePattern.exec(basename(path)) ?? []
  if (sessionId === undefined) return null
  const copy = repaired !== undefined ? 'repaired' : zst !== undefined ? 'compressed' : null
  return { path, sessionId, seconds: Number(seconds), count: Number(count), copy }
}

/** Lists the records in a folder. Returns an empty list if the folder does not exist. */
export function listRecords(folder: string): RecordFile[] {
  return listRegularFiles(folder).flatMap((name) => parseRecordPath(join(folder, name)) ?? [])
}

function listRegularFiles(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true })
    const isRegular = (entry: Dirent): boolean =>
      entry.isSymbolicLink() ? isRegularFile(join(folder, entry.name)) : entry.isFile()
    return entries.filter(isRegular).map(({ name }) => name)
  } catch {
    return []
  }
}

/** The name that a record shares with its repaired and compressed copies. */
export const recordNameOf = (path: string): string =>
  basename(path.replace(/\.zst$/, '')).replace(`.repaired${recordSuffix}`, recordSuffix)

/**
 * The order in which the copies of a record are preferred. A record that has a repaired copy cannot
 * be resumed itself.
 */
const copyOrder = { repaired: 0, record: 1, compressed: 2 } as const
const copyRank = ({ copy }: RecordFile): number => copyOrder[copy ?? 'record']

/** Sorts by the time in the name, and within a second by file number or modification time. */
export function sortNewestFirst(records: readonly RecordFile[]): RecordFile[] {
  return records.toSorted(
    (a, b) =>
      b.seconds - a.seconds ||
      (a.sessionId === b.sessionId ? b.count - a.count : modifiedMs(b) - modifiedMs(a)) ||
      copyRank(a) - copyRank(b) ||
      (a.path < b.path ? -1 : 1),
  )
}

const modifiedMs = ({ path }: RecordFile): number => statOf(path)?.mtimeMs ?? 0

/** Removes a record and its companion files. Never throws. */
export function removeRecord(path: string): void {
  const stem = path.slice(0, -recordSuffix.length)
  if (!path.endsWith(recordSuffix)) return
  try {
    for (const ending of [recordSuffix, '.results', '.run']) rmSync(stem + ending, { force: true })
  } catch {
    // A file that cannot be removed is kept. Readers skip an empty record.
  }
}

const requestPattern = /^(.+)\.[^.]+\.request$/

/** The path of a companion file. Copies of a record have the same companion files. */
export const companionPath = (record: string, suffix: '.results' | '.run' | '.follow'): string =>
  record.replace(/(?:\.repaired)?\.telemetry\.jsonl(?:\.zst)?$/, '') + suffix

/**
 * The folder through which a command requests and receives the output of a running program. It is
 * next to the record, because the command and the session both know the record's path.
 */
export const followFolderOf = (record: string): string => companionPath(record, '.follow')

/** Encodes a task's uid for a file name. In a damaged record, the uid may contain any text. */
const encodeUid = (uid: string): string => encodeURIComponent(uid)

/** The path of a request file. A command creates it, and touches it while the request is valid. */
export const requestPath = (folder: string, uid: string, command: string): string =>
  join(folder, `${encodeUid(uid)}.${command}.request`)

/** Returns the uid of a request file; `null` for any other file. */
export const requestedUid = (name: string): string | null => requestPattern.exec(name)?.[1] ?? null

export const outputPath = (folder: string, uid: string, stream: 'stdout' | 'stderr'): string =>
  join(folder, `${encodeUid(uid)}.${stream}`)
