/** Finds the runs in a folder, each with all its files. Never follows symbolic links. */

import { lstatSync, readdirSync, type Stats } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { readRecordHead } from '../checkpoint/chain.ts'
import {
  parseRecordPath,
  type RecordFile,
  recordNameOf,
  recordSuffix,
} from '../checkpoint/record-names.ts'

/** A record, a copy of it, or a companion file. */
export interface RunFile {
  readonly path: string
  readonly bytes: number
}

export interface StoredRun {
  readonly folder: string
  readonly sessionId: string
  /** The names of the records, not including copies. */
  readonly records: readonly string[]
  /**
   * The files of the run. Records come last, newest first, so that an interrupted removal leaves an
   * older, valid run.
   */
  readonly files: readonly RunFile[]
  /** When a file was last written, in wall-clock seconds. */
  readonly lastSeconds: number
}

const filePattern = new RegExp(
  String.raw`^(.+\.\d+(?:-\d+)?)(?:\.results|\.run|\.follow|` +
    String.raw`(?:\.repaired)?\.telemetry\.jsonl(?:\.zst)?(?:\.view)?(?:\.\d+\.tmp)?)$`,
)

export interface FindRunsOptions {
  /** Finds only the runs of this session. Default: all sessions. */
  readonly only?: string
  /**
   * Reads the head of a record. A caller that lists a folder repeatedly can pass a cached version.
   */
  readonly readHead?: typeof readRecordHead
}

/**
 * Returns the runs in no particular order; none if the folder does not exist. Leaves out runs that
 * contain a symbolic link, or a file that only has the name of a record.
 */
export async function findRuns(
  folder: string,
  { only, readHead = readRecordHead }: FindRunsOptions = {},
): Promise<StoredRun[]> {
  const all = listNames(folder)
  const names = all.flatMap((name) => [name, ...listFollowFiles(folder, name)])
  const files = names.flatMap((name) => statRegularFile(join(folder, name)) ?? [])
  const byStem = Map.groupBy(files, ({ path }) => {
    const [name = ''] = relative(folder, path).split(sep)
    return filePattern.exec(name)?.[1] ?? ''
  })
  const records = all.flatMap((name) => parseRecordPath(join(folder, name)) ?? [])
  const bySession = Map.groupBy(records, ({ sessionId }) => sessionId)
  const runs: StoredRun[] = []
  for (const [sessionId, sessionRecords] of bySession) {
    if (only !== undefined && sessionId !== only) continue
    for (const chain of await groupChains(sessionRecords, readHead)) {
      if (isComplete(chain)) runs.push(toRun(folder, sessionId, chain, byStem))
    }
  }
  return runs
}

function listNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** Lists the files in a `.follow` folder, which a killed process may have left. */
function listFollowFiles(folder: string, name: string): string[] {
  const path = join(folder, name)
  if (!name.endsWith('.follow') || lstatOf(path)?.isDirectory() !== true) return []
  return listNames(path).map((inner) => join(name, inner))
}

interface DatedFile extends RunFile {
  readonly changedSeconds: number
}

function statRegularFile(path: string): DatedFile | null {
  const stats = lstatOf(path)
  if (stats?.isFile() !== true) return null
  return { path, bytes: stats.size, changedSeconds: stats.mtimeMs / 1000 }
}

const lstatOf = (path: string): Stats | undefined => lstatSync(path, { throwIfNoEntry: false })

interface CheckedRecord extends RecordFile {
  /** Whether the record is a regular file; `false` for a symbolic link. */
  readonly isFile: boolean
  /** Whether the content belongs to the session in the file name; `false` for an empty file. */
  readonly isOfSession: boolean
}

async function groupChains(
  records: readonly RecordFile[],
  readHead: typeof readRecordHead,
): Promise<CheckedRecord[][]> {
  const groups = new Map<
    string,
    { readonly members: CheckedRecord[]; readonly names: Set<string> }
  >()
  for (const record of records) {
    const { sessionId, previous: before } = await readHead(record.path)
    const stats = lstatOf(record.path)
    const isFile = stats?.isFile() === true
    const isOfSession = isFile && sessionId === record.sessionId
    const names = new Set([recordNameOf(record.path), ...(before === null ? [] : [before])])
    const merged = { members: [{ ...record, isFile, isOfSession }], names }
    for (const group of new Set([...names].flatMap((name) => groups.get(name) ?? []))) {
      merged.members.push(...group.members)
      for (const name of group.names) names.add(name)
    }
    for (const name of names) groups.set(name, merged)
  }
  return Array.from(new Set(groups.values()), ({ members }) => members)
}

/** Whether each record has at least one valid file. Its other copies may be damaged. */
function isComplete(chain: readonly CheckedRecord[]): boolean {
  const byName = Map.groupBy(chain, ({ path }) => recordNameOf(path))
  const hasValidCopy = Array.from(byName.values(), (copies) =>
    copies.some(({ isOfSession }) => isOfSession),
  )
  return chain.every(({ isFile }) => isFile) && !hasValidCopy.includes(false)
}

function toRun(
  folder: string,
  sessionId: string,
  chain: readonly CheckedRecord[],
  byStem: ReadonlyMap<string, readonly DatedFile[]>,
): StoredRun {
  const names = [...new Set(chain.map(({ path }) => recordNameOf(path)))]
  const files = names.flatMap((name) => byStem.get(name.slice(0, -recordSuffix.length)) ?? [])
  const isRecord = ({ path }: RunFile): boolean => parseRecordPath(path) !== null
  const newest = files.reduce((latest, one) => Math.max(latest, one.changedSeconds), 0)
  return {
    folder,
    sessionId,
    records: names,
    files: [
      ...files.filter((one) => !isRecord(one)),
      ...files.filter(isRecord).toSorted((a, b) => (a.path < b.path ? 1 : -1)),
    ],
    // Uses the times in the names as well, because copying a file changes its time.
    lastSeconds: chain.reduce((latest, { seconds }) => Math.max(latest, seconds), newest),
  }
}
