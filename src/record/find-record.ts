/** Finds the record that a user names: a file, a folder, a session, or the latest one. */

import { readdirSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { findLastFile } from '../checkpoint/chain.ts'
import { readFailure } from '../checkpoint/files.ts'
import { standardInput } from '../checkpoint/reader.ts'
import { parseRecordPath, type RecordFile, recordsIn } from '../checkpoint/record-names.ts'
import { recordSuffix, sortNewestFirst } from '../checkpoint/record-names.ts'
import { ValueError } from '../foundation/errors.ts'
import { didYouMean } from '../foundation/options.ts'
import { statOf } from '../foundation/regular-file.ts'

/** The folders that are searched for a session or `latest`. */
export const usualFolders: readonly string[] = ['.', './telemetry']

/**
 * Returns the path of the record. `what` is the path of a file, `-` for standard input, a folder
 * (its latest record), `latest`, or a session id, which may be shortened as long as it is unique in
 * `folders`. For a folder or session, the result is the last file of the latest run; empty files
 * left by killed processes are ignored. If nothing matches, rejects with a `ValueError` that lists
 * the available records.
 */
export async function findRecord(
  what: string,
  folders: readonly string[] = usualFolders,
): Promise<string> {
  if (what === '-') return standardInput
  const kind = kindOf(what)
  if (kind === 'folder') return latestOf(recordsIn(what), [what])
  // The reader reports why the path cannot be read.
  if (kind !== null || /[/\\]|\.jsonl(?:\.zst)?$/.test(what)) return what
  const records = folders.flatMap(recordsIn)
  if (what === 'latest') return latestOf(records, folders)
  return ofSession(what, records, folders)
}

/** The path as a user would type it: relative if it is inside the working folder. */
export function nearestPath(path: string): string {
  const near = relative(process.cwd(), path)
  return near.startsWith('..') ? path : near
}

/** Never throws, for example if the path is longer than the system allows. */
function kindOf(path: string): 'file' | 'folder' | 'other' | null {
  const stats = statOf(path)
  if (stats === null) return null
  return stats.isFile() ? 'file' : stats.isDirectory() ? 'folder' : 'other'
}

async function latestOf(
  records: readonly RecordFile[],
  folders: readonly string[],
): Promise<string> {
  const latest = await findNewest(records)
  if (latest !== null) return latest.path
  expectReadable(folders)
  throw new ValueError(`there is no record in ${folders.join(' and ')}`, {
    code: 'RecordNotFoundError',
    hint: unnamedIn(folders) ?? 'Name a .telemetry.jsonl file, or a folder that has one.',
  })
}

/** Finds a renamed file: without session and time in its name, it must be given by its path. */
function unnamedIn(folders: readonly string[]): string | null {
  const isOther = (path: string): boolean =>
    path.includes(recordSuffix) && kindOf(path) === 'file' && parseRecordPath(path) === null
  for (const folder of folders.filter((one) => kindOf(one) === 'folder')) {
    const path = readdirSync(folder)
      .map((name) => join(folder, name))
      .find(isOther)
    if (path !== undefined) return `Name the file itself: ${nearestPath(path)}`
  }
  return null
}

/** Rejects an unreadable folder, because it may contain records. */
function expectReadable(folders: readonly string[]): void {
  for (const folder of folders) {
    if (kindOf(folder) !== 'folder') continue
    try {
      readdirSync(folder)
    } catch (error) {
      throw readFailure('the folder', folder, error)
    }
  }
}

/** Reads only the beginnings of one session's files, because file names order the sessions. */
async function findNewest(records: readonly RecordFile[]): Promise<RecordFile | null> {
  const sessions = Map.groupBy(
    sortNewestFirst(records),
    ({ path, sessionId }) => `${dirname(path)}/${sessionId}`,
  )
  for (const files of sessions.values()) {
    const last = await findLastFile(files)
    if (last !== null) return last
  }
  return null
}

async function ofSession(
  what: string,
  records: readonly RecordFile[],
  folders: readonly string[],
): Promise<string> {
  const exact = records.filter(({ sessionId }) => sessionId === what)
  const byName = (record: RecordFile): boolean => basename(record.path).startsWith(what)
  const found = exact.length > 0 ? exact : records.filter(byName)
  const sessions = [...new Set(found.map(({ sessionId }) => sessionId))]
  const one = sessions.length === 1 ? await findNewest(found) : null
  if (one !== null) return one.path
  if (sessions.length > 1) {
    throw new ValueError(`"${what}" is the beginning of ${sessions.length} sessions`, {
      code: 'AmbiguousRecordError',
      hint: `Write more of one of them: ${sessions.slice(0, 5).join(', ')}`,
    })
  }
  expectReadable(folders)
  const known = [...new Set(records.map(({ sessionId }) => sessionId))]
  const near = didYouMean(what, known)
  throw new ValueError(`there is no file, folder or session "${what}"${near}`, {
    code: 'RecordNotFoundError',
    hint: known.length === 0 ? `There is no record in ${folders.join(' and ')}.` : listOf(known),
  })
}

const maxNamed = 5

const listOf = (sessions: readonly string[]): string =>
  `There are ${sessions.slice(0, maxNamed).join(', ')}` +
  `${sessions.length > maxNamed ? ' and others' : ''}.`
