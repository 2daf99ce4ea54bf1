/**
 * A snapshot of all panels next to a record (`….view`), which only saves reading the record again.
 * A snapshot that does not match its record exactly is ignored.
 */

import { openRegularFile } from '../foundation/regular-file.ts'
import { createHash } from 'node:crypto'
import { open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { isCompressed } from '../checkpoint/compressed.ts'
import { signalReaches } from '../checkpoint/lock.ts'
import type { LinePosition } from '../checkpoint/reader.ts'
import { version as libraryVersion } from '../foundation/version.ts'
import type { RunStates } from '../views/all-panels.ts'
import { countParts, type LocatedPart, maxPartBytes, readStates } from './snapshot-parts.ts'
import { type SnapshotPart, writeParts } from './snapshot-parts.ts'

/** Increase this whenever the form of any panel's state changes. */
const snapshotVersion = 27
const magic = 'tutti-view'
const headBytes = 65_536
const tailBytes = 4096

/** One file of the run, up to the position that the snapshot covers. */
interface CoveredFile {
  readonly name: string
  readonly end: LinePosition
  /** The digest of the first bytes of the file, and of the last bytes before `end`. */
  readonly digest: string
}

/** The progress of reading the files of a run, without the states of the panels. */
export interface ReadSoFar {
  /** The position reached in each file; all files before the last were read completely. */
  readonly ends: readonly LinePosition[]
  readonly lines: number
  readonly bad: number
  readonly unknown: number
  /** The last metric line. */
  readonly metrics: Readonly<Record<string, unknown>> | null
}

export interface Snapshot {
  readonly read: ReadSoFar
  readonly states: RunStates
}

interface SnapshotHead {
  readonly magic: string
  readonly version: number
  readonly library: string
  readonly files: readonly CoveredFile[]
  readonly read: Omit<ReadSoFar, 'ends'>
  /** The parts of the states, which follow the head. Writing them one by one needs less memory. */
  readonly parts: readonly SnapshotPart[]
}

const crcBytes = 9
const crcText = (line: Buffer): string => `${crc32(line).toString(16).padStart(8, '0')} `

const snapshotPath = (record: string): string => `${record}.view`

/**
 * Writes a snapshot next to the last of the files, with an atomic rename. Returns whether the
 * snapshot was written; a read-only folder is not an error.
 */
export async function writeSnapshot(
  files: readonly string[],
  { read, states }: Snapshot,
): Promise<boolean> {
  const last = files.at(-1)
  if (last === undefined) return false
  const temporary = `${snapshotPath(last)}.${process.pid}.tmp`
  try {
    const covered = files.map((path, at) => cover(path, read.ends[at] ?? { line: 1, offset: 0 }))
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

/** Removes drafts left by processes that were killed while writing. */
async function removeDrafts(record: string): Promise<void> {
  const stem = `${basename(snapshotPath(record))}.`
  const names = await readdir(dirname(record)).catch(() => [])
  for (const name of names.filter((one) => one.startsWith(stem) && one.endsWith('.tmp'))) {
    const pid = Number(name.slice(stem.length, -'.tmp'.length))
    if (pid > 0 && signalReaches(pid)) continue
    await rm(join(dirname(record), name), { force: true }).catch(() => undefined)
  }
}

function toHead({ lines, bad, unknown, metrics }: ReadSoFar): Omit<SnapshotHead, 'files'> {
  const read = { lines, bad, unknown, metrics }
  return { magic, version: snapshotVersion, library: libraryVersion, read, parts: [] }
}

/** Writes the CRC and the padded head last, because the head has the lengths of the states. */
async function writeStates(path: string, head: SnapshotHead, states: RunStates): Promise<void> {
  const named = Object.entries({ counts: states.counts, ...states.panels })
  const count = named.reduce((sum, [name, state]) => sum + countParts(name, state), 0)
  const room = Buffer.byteLength(JSON.stringify(head)) + count * maxPartBytes
  // A draft may be left by a killed process that had the same id.
  await rm(path, { force: true })
  const file = await open(path, 'wx', 0o600)
  try {
    const parts: SnapshotPart[] = []
    let at = crcBytes + room + 1
    for (const [name, state] of named) {
      const written = await writeParts(file, at, name, state)
      parts.push(...written)
      at += sizeOf(written)
    }
    const text = Buffer.from(JSON.stringify({ ...head, parts }))
    const line = Buffer.concat([text, Buffer.alloc(room - text.length, ' ')])
    const whole = Buffer.concat([Buffer.from(crcText(line)), line, Buffer.from('\n')])
    await file.write(whole, 0, whole.length, 0)
  } finally {
    await file.close()
  }
}

const sizeOf = (parts: readonly SnapshotPart[]): number =>
  parts.reduce((sum, { bytes }) => sum + bytes, 0)

/**
 * Returns the snapshot next to the last of the files; `null` if none matches all files. With
 * `onDemand`, states are read on first access, if the files contain nothing beyond the snapshot; a
 * damaged part then throws a `SnapshotDamagedError`.
 */
export async function readSnapshot(
  files: readonly string[],
  onDemand = false,
): Promise<Snapshot | null> {
  const last = files.at(-1)
  if (last === undefined) return null
  try {
    const path = snapshotPath(last)
    const found = await readHead(path)
    if (found === null || !isOfThisVersion(found.head)) return null
    const { head, bytes } = found
    if (!(await fits(head.files, files))) return null
    const ends = head.files.map(({ end }) => end)
    const isAll = isCompressed(last) || (await stat(last)).size === ends.at(-1)?.offset
    const located = locate(head.parts, bytes)
    if ((await stat(path)).size !== bytes + sizeOf(head.parts)) return null
    const isCounts = ({ path: [name] }: LocatedPart): boolean => name === 'counts'
    const states = {
      counts: readStates(path, located.filter(isCounts), onDemand && isAll)['counts'],
      panels: readStates(
        path,
        located.filter((part) => !isCounts(part)),
        onDemand && isAll,
      ),
    }
    return { read: { ...head.read, ends }, states: states as unknown as RunStates }
  } catch {
    return null
  }
}

const firstHeadBytes = 65_536

/** `bytes` is the offset of the states. `null` if the file is not a snapshot. */
async function readHead(path: string): Promise<{ head: SnapshotHead; bytes: number } | null> {
  const file = await openRegularFile(path)
  try {
    for (let max = firstHeadBytes; ; max *= 4) {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(max), 0, max, 0)
      const end = buffer.subarray(0, bytesRead).indexOf(0x0a)
      if (end === -1 && bytesRead === max) continue
      const line = buffer.subarray(crcBytes, end)
      if (end === -1 || buffer.toString('latin1', 0, crcBytes) !== crcText(line)) return null
      return { head: JSON.parse(line.toString('utf8')) as SnapshotHead, bytes: end + 1 }
    }
  } finally {
    await file.close()
  }
}

function locate(parts: readonly SnapshotPart[], from: number): LocatedPart[] {
  let offset = from
  return parts.map((part) => {
    const located = { ...part, offset }
    offset += part.bytes
    return located
  })
}

const isOfThisVersion = ({ magic: found, version, library }: SnapshotHead): boolean =>
  found === magic && version === snapshotVersion && library === libraryVersion

async function fits(covered: readonly CoveredFile[], files: readonly string[]): Promise<boolean> {
  if (covered.length !== files.length) return false
  const now = await Promise.all(
    covered.map(async ({ end }, at) => await cover(files[at] ?? '', end)),
  )
  return covered.every(
    ({ name, digest }, at) => name === now[at]?.name && digest === now[at].digest,
  )
}

/** Rejects if the file is shorter than `end`. */
async function cover(path: string, end: LinePosition): Promise<CoveredFile> {
  const file = await openRegularFile(path)
  try {
    const hash = createHash('sha256')
    // A compressed record does not grow, and `end` is a position in its uncompressed content.
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
  } finally {
    await file.close()
  }
}
