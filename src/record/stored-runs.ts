/** The runs of a folder, each with all its files. Symbolic links are never followed. */

import { lstatSync, readdirSync, type Stats } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { readHead } from '../checkpoint/chain.ts'
import {
  parseRecordPath,
  type RecordFile,
  recordNameOf,
  recordSuffix,
} from '../checkpoint/record-names.ts'

/** A record, one of its copies, or a companion file. */
export interface RunFile {
  readonly path: string
  readonly bytes: number
}

export interface StoredRun {
  readonly folder: string
  readonly sessionId: string
  /** The names of the run's records, without copies. */
  readonly records: readonly string[]
  /** Records come last, newest first, so that an interrupted removal leaves an older, valid run. */
  readonly files: readonly RunFile[]
  /** The time of the last write, in wall-clock seconds. */
  readonly lastSeconds: number
}

/** Matches companion files such as `<stem>.results`, and the records themselves. */
const fileForm = new RegExp(
  String.raw`^(.+\.\d+(?:-\d+)?)(?:\.results|\.run|\.follow|` +
    String.raw`(?:\.repaired)?\.telemetry\.jsonl(?:\.zst)?(?:\.view)?(?:\.\d+\.tmp)?)$`,
)

/**
 * Returns the runs in no particular order; none if the folder does not exist. Leaves out runs that
 * contain a symbolic link, or a file that is only named like a record. `only` is a session id.
 */
export async function findRuns(folder: string, only?: string): Promise<StoredRun[]> {
  const all = namesIn(folder)
  const names = all.flatMap((name) => [name, ...followFilesIn(folder, name)])
  const files = names.flatMap((name) => regularFile(join(folder, name)) ?? [])
  const byStem = Map.groupBy(files, ({ path }) => {
    const [name = ''] = relative(folder, path).split(sep)
    return fileForm.exec(name)?.[1] ?? ''
  })
  const records = all.flatMap((name) => parseRecordPath(join(folder, name)) ?? [])
  const bySession = Map.groupBy(records, ({ sessionId }) => sessionId)
  const runs: StoredRun[] = []
  for (const [sessionId, ofSession] of bySession) {
    if (only !== undefined && sessionId !== only) continue
    for (const chain of await chainsOf(ofSession)) {
      if (isWhole(chain)) runs.push(toRun(folder, sessionId, chain, byStem))
    }
  }
  return runs
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** The files in a `followFolderOf` that were left by a killed process. */
function followFilesIn(folder: string, name: string): string[] {
  const path = join(folder, name)
  if (!name.endsWith('.follow') || lstatOf(path)?.isDirectory() !== true) return []
  return namesIn(path).map((inner) => join(name, inner))
}

interface FileFacts extends RunFile {
  readonly changedSeconds: number
}

function regularFile(path: string): FileFacts | null {
  const stats = lstatOf(path)
  if (stats?.isFile() !== true) return null
  return { path, bytes: stats.size, changedSeconds: stats.mtimeMs / 1000 }
}

const lstatOf = (path: string): Stats | undefined => lstatSync(path, { throwIfNoEntry: false })

interface ReadRecord extends RecordFile {
  /** Whether this is a regular file, not a symbolic link. */
  readonly isFile: boolean
  /** Whether the content is a record of the session in the file name; false for an empty file. */
  readonly isOwn: boolean
}

/** Groups records that continue each other, together with their copies. */
async function chainsOf(records: readonly RecordFile[]): Promise<ReadRecord[][]> {
  const groups = new Map<string, { readonly members: ReadRecord[]; readonly names: Set<string> }>()
  for (const record of records) {
    const { sessionId, before } = await readHead(record.path)
    const stats = lstatOf(record.path)
    const isFile = stats?.isFile() === true
    const isOwn = isFile && sessionId === record.sessionId
    const names = new Set([recordNameOf(record.path), ...(before === null ? [] : [before])])
    const merged = { members: [{ ...record, isFile, isOwn }], names }
    for (const group of new Set([...names].flatMap((name) => groups.get(name) ?? []))) {
      merged.members.push(...group.members)
      for (const name of group.names) names.add(name)
    }
    for (const name of names) groups.set(name, merged)
  }
  return Array.from(new Set(groups.values()), ({ members }) => members)
}

/** Whether each record has at least one file with valid content; its copies may be damaged. */
function isWhole(chain: readonly ReadRecord[]): boolean {
  const byName = Map.groupBy(chain, ({ path }) => recordNameOf(path))
  const isProven = Array.from(byName.values(), (copies) => copies.some(({ isOwn }) => isOwn))
  return chain.every(({ isFile }) => isFile) && !isProven.includes(false)
}

function toRun(
  folder: string,
  sessionId: string,
  chain: readonly ReadRecord[],
  byStem: ReadonlyMap<string, readonly FileFacts[]>,
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
    // Uses both times: copying a file changes its time, and a clock may have been wrong.
    lastSeconds: chain.reduce((latest, { seconds }) => Math.max(latest, seconds), newest),
  }
}
