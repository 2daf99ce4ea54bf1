/**
 * A snapshot of all panels beside a record: `….view`. It saves reading the record again, nothing
 * depends on it, and one that does not fit its record in every respect counts as none.
 */

import { createHash } from 'node:crypto'
import { open, readFile, rename, rm } from 'node:fs/promises'
import { basename } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import { crc32 } from 'node:zlib'
import { isCompressed } from '../checkpoint/compressed.ts'
import type { LinePosition } from '../checkpoint/reader.ts'
import { version as libraryVersion } from '../foundation/version.ts'
import type { RunStates } from '../views/all-panels.ts'

/** Raise it whenever the state of any panel changes its form. */
const snapshotVersion = 4
const magic = 'tutti-view'
const headBytes = 65_536
const tailBytes = 4096

/** One file of the run, as far as the snapshot covers it. */
interface CoveredFile {
  readonly name: string
  readonly end: LinePosition
  /** Of its first bytes, and of the last ones before `end`. */
  readonly digest: string
}

/** What was read of the files of a run, beside the states of the panels. */
export interface ReadSoFar {
  /** Of all files but the last one that was begun, everything was read. */
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
  /** The states that follow, one after the other: serialized one by one, they need less memory. */
  readonly sections: readonly Section[]
}

interface Section {
  readonly name: string
  readonly bytes: number
  readonly crc: number
}

const crcBytes = 9
const crcText = (line: Buffer): string => `${crc32(line).toString(16).padStart(8, '0')} `

const snapshotPath = (record: string): string => `${record}.view`

/**
 * Writes a snapshot beside the last of the files, by a rename: readers see the old one or the new
 * one. A folder that cannot be written is no error: returns whether it was written.
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
    await writeSections(temporary, head, states)
    await rename(temporary, snapshotPath(last))
    return true
  } catch {
    await rm(temporary, { force: true }).catch(() => undefined)
    return false
  }
}

function toHead({ lines, bad, unknown, metrics }: ReadSoFar): Omit<SnapshotHead, 'files'> {
  const read = { lines, bad, unknown, metrics }
  return { magic, version: snapshotVersion, library: libraryVersion, read, sections: [] }
}

/** The head comes last, and padded: it has the lengths of what follows it. Its CRC is before it. */
async function writeSections(path: string, head: SnapshotHead, states: RunStates): Promise<void> {
  const named = Object.entries({ counts: states.counts, ...states.panels })
  const room = Buffer.byteLength(JSON.stringify(head)) + named.length * 100
  const file = await open(path, 'w', 0o600)
  try {
    const sections: Section[] = []
    let at = crcBytes + room + 1
    for (const [name, state] of named) {
      const bytes = serialize(state)
      await file.write(bytes, 0, bytes.length, at)
      sections.push({ name, bytes: bytes.length, crc: crc32(bytes) })
      at += bytes.length
    }
    const text = Buffer.from(JSON.stringify({ ...head, sections }))
    const line = Buffer.concat([text, Buffer.alloc(room - text.length, ' ')])
    const whole = Buffer.concat([Buffer.from(crcText(line)), line, Buffer.from('\n')])
    await file.write(whole, 0, whole.length, 0)
  } finally {
    await file.close()
  }
}

/** The snapshot beside the last of the files; `null` when there is none that fits all of them. */
export async function readSnapshot(files: readonly string[]): Promise<Snapshot | null> {
  const last = files.at(-1)
  if (last === undefined) return null
  try {
    const bytes = await readFile(snapshotPath(last))
    const headEnd = bytes.indexOf(0x0a)
    const line = bytes.subarray(crcBytes, headEnd)
    if (bytes.toString('latin1', 0, crcBytes) !== crcText(line)) return null
    const head = JSON.parse(line.toString('utf8')) as SnapshotHead
    if (!isOfThisVersion(head) || !(await fits(head.files, files))) return null
    const states = readSections(bytes.subarray(headEnd + 1), head.sections)
    const ends = head.files.map(({ end }) => end)
    return states === null ? null : { read: { ...head.read, ends }, states }
  } catch {
    return null
  }
}

function readSections(bytes: Buffer, sections: readonly Section[]): RunStates | null {
  const found = new Map<string, Buffer>()
  let at = 0
  for (const { name, bytes: length, crc } of sections) {
    const section = bytes.subarray(at, at + length)
    if (section.length !== length || crc32(section) !== crc) return null
    found.set(name, section)
    at += length
  }
  const counts = found.get('counts')
  if (counts === undefined) return null
  found.delete('counts')
  return { counts: deserialize(counts) as RunStates['counts'], panels: lazyPanels(found) }
}

/** A state is read when it is asked for: few commands need all of them. */
function lazyPanels(sections: ReadonlyMap<string, Buffer>): RunStates['panels'] {
  const panels = {}
  for (const [name, section] of sections) {
    const own = { configurable: true, enumerable: true }
    Object.defineProperty(panels, name, {
      ...own,
      get() {
        const value: unknown = deserialize(section)
        Object.defineProperty(panels, name, { ...own, value, writable: true })
        return value
      },
    })
  }
  return panels as RunStates['panels']
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

/** Rejects when the file is shorter than that. */
async function cover(path: string, end: LinePosition): Promise<CoveredFile> {
  const file = await open(path)
  try {
    const hash = createHash('sha256')
    // A compressed record does not grow, and its positions are not those of the file.
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
