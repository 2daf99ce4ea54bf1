/**
 * A snapshot of all panels next to a record (`….view`), which saves reading the record again.
 * Readers ignore a snapshot that does not match its record exactly.
 */

import { openRegularFile } from '../foundation/regular-file.ts'
import { createHash } from 'node:crypto'
import { open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { isCompressed } from '../checkpoint/compressed.ts'
import { processExists } from '../checkpoint/lock.ts'
import type { LinePosition } from '../checkpoint/reader.ts'
import { version as libraryVersion } from '../foundation/version.ts'
import type { RunStates } from '../views/all-panels.ts'
import { readStates, type SnapshotPart, writeParts } from './snapshot-parts.ts'

/** Increase this whenever the form of a panel's state changes. */
const snapshotVersion = 33
const magic = 'tutti-view'
const headBytes = 65_536
const tailBytes = 4096

interface CoveredFile {
  readonly name: string
  readonly end: LinePosition
  /** The digest of the first bytes of the file and the last bytes before `end`. */
  readonly digest: string
}

export interface ReadProgress {
  /** The position reached in each file. Only the last file may be incomplete. */
  readonly ends: readonly LinePosition[]
  readonly lines: number
  readonly bad: number
  readonly unknown: number
  readonly metrics: Readonly<Record<string, unknown>> | null
}

export interface Snapshot {
  readonly read: ReadProgress
  readonly states: RunStates
}

interface SnapshotHead {
  readonly magic: string
  readonly version: number
  readonly library: string
  readonly files: readonly CoveredFile[]
  readonly read: Omit<ReadProgress, 'ends'>
  readonly parts: readonly SnapshotPart[]
}

/** The last bytes of a snapshot: the size and the checksum of the head, which precedes them. */
const trailerBytes = 24
const trailerOf = (head: Buffer): Buffer =>
  Buffer.from(`${head.length} ${crc32(head).toString(16)}\n`.padStart(trailerBytes))

const snapshotPath = (record: string): string => `${record}.view`

/**
 * Writes a snapshot next to the last of the files, with an atomic rename. Returns `false` if that
 * is not possible, for example in a read-only folder.
 */
export async function writeSnapshot(
  files: readonly string[],
  { read, states }: Snapshot,
): Promise<boolean> {
  const last = files.at(-1)
  if (last === undefined) return false
  const temporary = `${snapshotPath(last)}.${process.pid}.tmp`
  try {
    const covered = files.map((path, at) =>
      digestFile(path, read.ends[at] ?? { line: 1, offset: 0 }),
    )
    const head = { ...toHead(read), files: await Promise.all(covered) }
    await writeStates(temporary, head, states)
    await rename(temporary, snapshotPath(last))
    await removeDrafts(last)
    return true
  } catch {
    await rm(temporary, { force: true }).catch(() => undefined)
    return false
  }
}

/** Removes the snapshot of a record, and drafts left by killed processes. Never rejects. */
export async function removeSnapshot(record: string): Promise<void> {
  await rm(snapshotPath(record), { force: true }).catch(() => undefined)
  await removeDrafts(record)
}

async function removeDrafts(record: string): Promise<void> {
  const stem = `${basename(snapshotPath(record))}.`
  const names = await readdir(dirname(record)).catch(() => [])
  for (const name of names.filter((one) => one.startsWith(stem) && one.endsWith('.tmp'))) {
    const pid = Number(name.slice(stem.length, -'.tmp'.length))
    if (pid > 0 && processExists(pid)) continue
    await rm(join(dirname(record), name), { force: true }).catch(() => undefined)
  }
}

function toHead({ lines, bad, unknown, metrics }: ReadProgress): Omit<SnapshotHead, 'files'> {
  const read = { lines, bad, unknown, metrics }
  return { magic, version: snapshotVersion, library: libraryVersion, read, parts: [] }
}

/** Writes the states, and then the head, which contains the positions of their parts. */
async function writeStates(path: string, head: SnapshotHead, states: RunStates): Promise<void> {
  // A killed process with the same pid may have left a draft.
  await rm(path, { force: true })
  await using file = await open(path, 'wx', 0o600)
  const parts: SnapshotPart[] = []
  for (const [name, state] of Object.entries({ counts: states.counts, ...states.panels })) {
    parts.push(...(await writeParts(file, endOf(parts), name, state)))
  }
  const text = Buffer.from(JSON.stringify({ ...head, parts }))
  await file.write(Buffer.concat([text, trailerOf(text)]), 0, null, endOf(parts))
}

/** Returns the offset at which the last part ends. */
function endOf(parts: readonly SnapshotPart[]): number {
  const last = parts.at(-1)
  return last === undefined ? 0 : last.offset + last.bytes
}

/**
 * Returns the snapshot that is stored beside the last file; `null` if it does not match all files.
 * With `onDemand`, states are read on first access if the files contain nothing beyond the
 * snapshot. A damaged part then throws a `SnapshotDamagedError`.
 */
export async function readSnapshot(
  files: readonly string[],
  onDemand = false,
): Promise<Snapshot | null> {
  const last = files.at(-1)
  if (last === undefined) return null
  try {
    const path = snapshotPath(last)
    const head = await readHead(path)
    if (head === null || !isCurrentVersion(head)) return null
    if (!(await matchesFiles(head.files, files))) return null
    const ends = head.files.map(({ end }) => end)
    const isComplete = isCompressed(last) || (await stat(last)).size === ends.at(-1)?.offset
    const read = (isMeant: (name: string | undefined) => boolean): Record<string, unknown> => {
      const parts = head.parts.filter(({ path: [name] }) => isMeant(name))
      return readStates(path, parts, onDemand && isComplete)
    }
    const { counts } = read((name) => name === 'counts')
    const states = { counts, panels: read((name) => name !== 'counts') }
    return { read: { ...head.read, ends }, states: states as unknown as RunStates }
  } catch {
    return null
  }
}

/** Returns `null` if the file is not a snapshot, or is incomplete. */
async function readHead(path: string): Promise<SnapshotHead | null> {
  await using file = await openRegularFile(path)
  const { size } = await file.stat()
  const read = async (length: number, from: number): Promise<Buffer> =>
    (await file.read(Buffer.alloc(length), 0, length, from)).buffer
  const trailer = await read(trailerBytes, size - trailerBytes)
  const length = Number.parseInt(trailer.toString('latin1'), 10)
  const end = size - trailerBytes
  if (!(length > 0 && length <= end)) return null
  const text = await read(length, end - length)
  if (!trailer.equals(trailerOf(text))) return null
  const head = JSON.parse(text.toString('utf8')) as SnapshotHead
  return endOf(head.parts) === end - length ? head : null
}

const isCurrentVersion = ({ magic: found, version, library }: SnapshotHead): boolean =>
  found === magic && version === snapshotVersion && library === libraryVersion

async function matchesFiles(
  covered: readonly CoveredFile[],
  files: readonly string[],
): Promise<boolean> {
  if (covered.length !== files.length) return false
  const now = await Promise.all(covered.map(({ end }, at) => digestFile(files[at] ?? '', end)))
  return covered.every((one, at) => one.name === now[at]?.name && one.digest === now[at].digest)
}

/** Computes the digest of a file up to `end`. Rejects if the file is shorter. */
async function digestFile(path: string, end: LinePosition): Promise<CoveredFile> {
  await using file = await openRegularFile(path)
  const hash = createHash('sha256')
  // A compressed record is covered as a whole, because it does not grow and `end` is a position in
  // its uncompressed content.
  const covered = isCompressed(path) ? (await file.stat()).size : end.offset
  for (const [from, to] of [
    [0, Math.min(headBytes, covered)],
    [Math.max(0, covered - tailBytes), covered],
  ] as const) {
    const buffer = Buffer.alloc(to - from)
    const { bytesRead } = await file.read(buffer, 0, buffer.length, from)
    if (bytesRead !== buffer.length) throw new RangeError(`${path} has become shorter`)
    hash.update(buffer)
  }
  return { name: basename(path), end, digest: hash.digest('hex') }
}
