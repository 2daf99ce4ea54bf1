/** Finds the record that a person names: a file, a folder, a session, or the latest one. */

import { readdirSync, statSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { standardInput } from '../checkpoint/reader.ts'
import { ValueError } from '../foundation/errors.ts'
import { didYouMean } from '../foundation/options.ts'

/** Where a session or `latest` is looked for. */
const usualFolders: readonly string[] = ['.', './telemetry']

interface FoundRecord {
  readonly path: string
  readonly sessionId: string
  /** When its session began, in seconds, and its number among those of that second. */
  readonly seconds: number
  readonly count: number
  readonly isCompressed: boolean
}

/** `<session_id>.<unix seconds>[-N].telemetry.jsonl`, and `.zst` where it is compressed. */
const recordName = /^(.+)\.(\d+)(?:-(\d+))?\.telemetry\.jsonl(\.zst)?$/

/**
 * The path of the record. `what` is the path of a file or pipe, `-` for the standard input, a
 * folder (its latest record), `latest`, or a session's id, which may be shortened to what is unique
 * in `folders`. Throws a `ValueError` that says what there is, if there is no such record.
 */
export function findRecord(what: string, folders: readonly string[] = usualFolders): string {
  if (what === '-') return standardInput
  const kind = kindOf(what)
  if (kind === 'folder') return latestOf(recordsIn(what), what)
  // The reader says why a path that is not there cannot be read.
  if (kind === 'file' || /[/\\]|\.jsonl(?:\.zst)?$/.test(what)) return what
  const records = folders.flatMap(recordsIn)
  if (what === 'latest') return latestOf(records, folders.join(' and '))
  return ofSession(what, records, folders)
}

/** How a person names a file: relative to the working folder, unless it is outside of it. */
export function nearestPath(path: string): string {
  const near = relative(process.cwd(), path)
  return near.startsWith('..') ? path : near
}

/** No text makes it throw: names may be longer than the system allows. */
function kindOf(path: string): 'file' | 'folder' | null {
  try {
    return statSync(path).isDirectory() ? 'folder' : 'file'
  } catch {
    return null
  }
}

function recordsIn(folder: string): FoundRecord[] {
  return namesIn(folder).flatMap((name) => {
    const [, sessionId, seconds, count = '1', zst] = recordName.exec(name) ?? []
    if (sessionId === undefined) return []
    const isCompressed = zst !== undefined
    const path = join(folder, name)
    return [{ path, sessionId, seconds: Number(seconds), count: Number(count), isCompressed }]
  })
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function latestOf(records: readonly FoundRecord[], where: string): string {
  const latest = newest(records)
  if (latest !== null) return latest.path
  throw new ValueError(`there is no record in ${where}`, {
    code: 'RecordNotFoundError',
    hint: 'Name a .telemetry.jsonl file, or a folder that has one.',
  })
}

/** Of a record and its compressed copy the record: it may still grow. */
function newest(records: readonly FoundRecord[]): FoundRecord | null {
  const [first] = records.toSorted(
    (a, b) =>
      b.seconds - a.seconds ||
      b.count - a.count ||
      Number(a.isCompressed) - Number(b.isCompressed) ||
      (a.path < b.path ? -1 : 1),
  )
  return first ?? null
}

function ofSession(
  what: string,
  records: readonly FoundRecord[],
  folders: readonly string[],
): string {
  const exact = records.filter(({ sessionId }) => sessionId === what)
  const byName = (record: FoundRecord): boolean => basename(record.path).startsWith(what)
  const found = exact.length > 0 ? exact : records.filter(byName)
  const sessions = [...new Set(found.map(({ sessionId }) => sessionId))]
  const one = sessions.length === 1 ? newest(found) : null
  if (one !== null) return one.path
  if (sessions.length > 1) {
    throw new ValueError(`"${what}" is the beginning of ${sessions.length} sessions`, {
      code: 'AmbiguousRecordError',
      hint: `Write more of one of them: ${sessions.slice(0, 5).join(', ')}`,
    })
  }
  const known = [...new Set(records.map(({ sessionId }) => sessionId))]
  const near = didYouMean(what, known)
  throw new ValueError(`there is no file, folder or session "${what}"${near}`, {
    code: 'RecordNotFoundError',
    hint: known.length === 0 ? `There is no record in ${folders.join(' and ')}.` : listOf(known),
  })
}

const mostNamed = 5

const listOf = (sessions: readonly string[]): string =>
  `There are ${sessions.slice(0, mostNamed).join(', ')}` +
  `${sessions.length > mostNamed ? ' and others' : ''}.`
