/**
 * Finds the record that a user names by a file, a folder, a session id, or `latest`. Rejects files
 * that are not records.
 */

import { readdirSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { findLastFile, isPipe } from '../checkpoint/chain.ts'
import { compressedSuffix } from '../checkpoint/compressed.ts'
import { readFailure } from '../checkpoint/files.ts'
import { readBatches, type ReadSummary, standardInput } from '../checkpoint/reader.ts'
import {
  parseRecordPath,
  type RecordFile,
  listRecords,
  recordSuffix,
  sortNewestFirst,
} from '../checkpoint/record-names.ts'
import { ValueError } from '../foundation/errors.ts'
import { didYouMean } from '../foundation/options.ts'
import { statOf } from '../foundation/regular-file.ts'

/** Folders that are searched for a session id and for `latest`. */
export const defaultFolders: readonly string[] = ['.', './telemetry']

/**
 * Returns the path of the record. `name` is the path of a file, `-` for standard input, a folder
 * (for its latest record), `latest`, or a session id, which may be shortened as long as it is
 * unique in `folders`. For a folder or session, the result is the last file of the latest run.
 * Ignores empty files, which killed processes may leave. If nothing matches, rejects with a
 * `ValueError` that lists the available records.
 */
export async function findRecord(
  name: string,
  folders: readonly string[] = defaultFolders,
): Promise<string> {
  if (name === '-') return standardInput
  const kind = fileKindOf(name)
  if (kind === 'folder') return findLatest(listRecords(name), [name])
  // If the path cannot be read, the reader of the record reports why.
  if (kind !== null || /[/\\]|\.jsonl(?:\.zst)?$/.test(name)) return name
  const records = folders.flatMap(listRecords)
  if (name === 'latest') return findLatest(records, folders)
  return findSession(name, records, folders)
}

/** Returns a relative path if the file is inside the working folder, or else the path itself. */
export function toShortPath(path: string): string {
  const relativePath = relative(process.cwd(), path)
  return relativePath.startsWith('..') ? path : relativePath
}

/**
 * Returns the kind of a file; `null` if there is none. Never throws, not even for a path that is
 * too long for the system.
 */
function fileKindOf(path: string): 'file' | 'folder' | 'other' | null {
  const stats = statOf(path)
  if (stats === null) return null
  return stats.isFile() ? 'file' : stats.isDirectory() ? 'folder' : 'other'
}

async function findLatest(
  records: readonly RecordFile[],
  folders: readonly string[],
): Promise<string> {
  const latest = await findNewest(records)
  if (latest !== null) return latest.path
  expectReadable(folders)
  throw new ValueError(`there is no record in ${folders.join(' and ')}`, {
    code: 'RecordNotFoundError',
    hint: suggestRenamed(folders) ?? 'Name a .telemetry.jsonl file, or a folder that has one.',
  })
}

/**
 * Suggests the path of a renamed record. No id finds it, because its name lacks session and time.
 */
function suggestRenamed(folders: readonly string[]): string | null {
  const isRenamed = (path: string): boolean =>
    path.includes(recordSuffix) && fileKindOf(path) === 'file' && parseRecordPath(path) === null
  for (const folder of folders.filter((one) => fileKindOf(one) === 'folder')) {
    const path = readdirSync(folder)
      .map((file) => join(folder, file))
      .find(isRenamed)
    if (path !== undefined) return `Name the file itself: ${toShortPath(path)}`
  }
  return null
}

/** Throws for an unreadable folder, because it may contain records. */
function expectReadable(folders: readonly string[]): void {
  for (const folder of folders) {
    if (fileKindOf(folder) !== 'folder') continue
    try {
      readdirSync(folder)
    } catch (error) {
      throw readFailure('the folder', folder, error)
    }
  }
}

/**
 * Finds the newest record. Reads only the beginnings of one session's files, because the file names
 * give the order of the sessions.
 */
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

async function findSession(
  name: string,
  records: readonly RecordFile[],
  folders: readonly string[],
): Promise<string> {
  const exact = records.filter(({ sessionId }) => sessionId === name)
  const byName = (record: RecordFile): boolean => basename(record.path).startsWith(name)
  const found = exact.length > 0 ? exact : records.filter(byName)
  const sessions = [...new Set(found.map(({ sessionId }) => sessionId))]
  const newest = sessions.length === 1 ? await findNewest(found) : null
  if (newest !== null) return newest.path
  if (sessions.length > 1) {
    throw new ValueError(`"${name}" is the beginning of ${sessions.length} sessions`, {
      code: 'AmbiguousRecordError',
      hint: `Write more of one of them: ${sessions.slice(0, 5).join(', ')}`,
    })
  }
  expectReadable(folders)
  const known = [...new Set(records.map(({ sessionId }) => sessionId))]
  const suggestion = didYouMean(name, known)
  throw new ValueError(`there is no file, folder or session "${name}"${suggestion}`, {
    code: 'RecordNotFoundError',
    hint:
      known.length === 0
        ? `There is no record in ${folders.join(' and ')}.`
        : describeSessions(known),
  })
}

const maxListed = 5

const describeSessions = (sessions: readonly string[]): string =>
  `Sessions with records here: ${sessions.slice(0, maxListed).join(', ')}` +
  `${sessions.length > maxListed ? ' and others' : ''}.`

/**
 * Whether the file has no valid line. `false` for a compressed file, whose only frame may be
 * damaged.
 */
export const isNotARecord = (path: string, { lines, bad }: Pick<ReadSummary, 'lines' | 'bad'>) =>
  lines === 0 && bad > 0 && !path.endsWith(`.jsonl${compressedSuffix}`)

export const notARecordError = (path: string): ValueError =>
  new ValueError(`${path} is not a record of tutti`, { code: 'NotARecordError' })

/** Rejects if the file is not a record. Does not check a pipe, which can be read only once. */
export async function expectRecord(path: string): Promise<void> {
  if (isPipe(path)) return
  const batches = readBatches(path)
  const first = await batches.next()
  if (first.done === true && isNotARecord(path, first.value)) throw notARecordError(path)
  if (first.done !== true) await batches.return(undefined as never)
}
