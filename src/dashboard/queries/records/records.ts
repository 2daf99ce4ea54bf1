/** The runs of a folder. Reads only the beginning and the end of each record. */

import { closeSync, readSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { readRecordHead, readSessionStart } from '../../../checkpoint/chain.ts'
import { isCompressed } from '../../../checkpoint/compressed.ts'
import { parseLine } from '../../../checkpoint/format.ts'
import {
  parseRecordPath,
  type RecordFile,
  recordNameOf,
  sortNewestFirst,
} from '../../../checkpoint/record-names.ts'
import { tryRead } from '../../../foundation/errors.ts'
import { openRegularFileSync, statOf } from '../../../foundation/regular-file.ts'
import type { RecordWriterStates } from '../../../record/record-views.ts'
import { findRuns, type StoredRun } from '../../../record/stored-runs.ts'
import { numberOf } from '../../../views/panel.ts'
import type { RecordsView } from '../../protocol.ts'
import { describeNotShown } from '../shown-texts.ts'
import { EndCounter, type TaskCounts } from './end-counter.ts'

type RecordRow = RecordsView['records'][number]

const maxRows = 200
/**
 * The size of the part at the end of a record that contains the last metric line and SessionEnded.
 */
const tailBytes = 65_536

/** The runs of one folder. A file that has not changed since the last listing is not read again. */
export class RecordList {
  readonly #folder: string
  readonly #writers: RecordWriterStates
  readonly #readHead = keptWhileUnchanged(readRecordHead)
  readonly #readSession = keptWhileUnchanged(readSession)
  readonly #counter = new EndCounter()

  constructor(folder: string, writers: RecordWriterStates) {
    this.#folder = folder
    this.#writers = writers
  }

  async show(): Promise<RecordsView> {
    const runs = await findRuns(this.#folder, { readHead: this.#readHead })
    const newest = runs.toSorted((a, b) => b.lastSeconds - a.lastSeconds)
    const records: RecordRow[] = []
    this.#counter.startListing()
    for (const run of newest.slice(0, maxRows)) records.push(await this.#toRow(run))
    return { records, notShown: describeNotShown([runs.length - records.length, 'older run']) }
  }

  /** Describes a run. A resumed run has several files; the last has the latest counts. */
  async #toRow({ files, sessionId }: StoredRun): Promise<RecordRow> {
    const records = files.flatMap(({ path }) => parseRecordPath(path) ?? [])
    const newest = listNewest(records)
    const sessions = await Promise.all(newest.map(({ path }) => this.#readSession(path)))
    const [path = ''] = newest.map((one) => one.path)
    const [last] = sessions
    const hasEnded = last?.hasEnded === true
    const isRunning = !hasEnded && (await this.#writers.isWriting(dirname(path), sessionId))
    const starts = sessions.flatMap(({ startTime }) => startTime ?? [])
    const seconds = sessions.flatMap(({ durationSeconds }) => durationSeconds ?? [])
    return {
      file: basename(path),
      sessionId,
      state: hasEnded ? 'ended' : isRunning ? 'running' : 'interrupted',
      startTime: starts.length === 0 ? null : Math.min(...starts),
      durationSeconds: seconds.length === 0 ? null : sum(seconds),
      bytes: sum(records.map((one) => statOf(one.path)?.size ?? 0)),
      ...(last?.counts ?? this.#count(path) ?? noCounts),
    }
  }

  /** Returns `null` for a compressed record, because all of it would have to be read. */
  #count(path: string): TaskCounts | null {
    return isCompressed(path) ? null : (tryRead(() => this.#counter.count(path)) ?? null)
  }
}

/** The preferred copy of each record of a run, newest first. */
function listNewest(records: readonly RecordFile[]): RecordFile[] {
  const byName = Map.groupBy(sortNewestFirst(records), ({ path }) => recordNameOf(path))
  return [...byName.values()].flatMap(([preferred]) => preferred ?? [])
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0)

const maxKept = 20_000

/** Caches the results of `read`. They are used until the file's size or time of change differs. */
function keptWhileUnchanged<T>(read: (path: string) => Promise<T>): (path: string) => Promise<T> {
  const kept = new Map<string, { readonly change: string; readonly result: Promise<T> }>()
  return (path) => {
    const { ino, size, mtimeMs } = statOf(path) ?? {}
    const change = `${ino} ${size} ${mtimeMs}`
    const known = kept.get(path)
    if (known?.change === change) return known.result
    if (kept.size >= maxKept) kept.clear()
    const result = read(path)
    kept.set(path, { change, result })
    return result
  }
}

interface RecordedSession {
  readonly startTime: number | null
  /** The seconds until the session ended, or until its last line if it has not ended. */
  readonly durationSeconds: number | null
  readonly hasEnded: boolean
  /** The counts of all tasks, including those done by an earlier session; `null` if not known. */
  readonly counts: TaskCounts | null
}

const noCounts: TaskCounts = { done: null, failed: null, canceled: null }

async function readSession(path: string): Promise<RecordedSession> {
  const start = await readSessionStart(path).catch(() => null)
  const startTime = start?.event_time ?? null
  const tail = readTail(path)
  const last = tail.endTime ?? tail.lastTime ?? statSeconds(path)
  return {
    startTime,
    durationSeconds: startTime === null || last === null ? null : Math.max(0, last - startTime),
    hasEnded: tail.endTime !== null,
    counts: tail.counts,
  }
}

const statSeconds = (path: string): number | null => {
  const stats = statOf(path)
  return stats === null ? null : stats.mtimeMs / 1000
}

interface RecordTail {
  readonly endTime: number | null
  /** The time of the last line that has one. */
  readonly lastTime: number | null
  /** The counts in the metric line at the end of the session; `null` if there is none. */
  readonly counts: TaskCounts | null
}

function readTail(path: string): RecordTail {
  let endTime: number | null = null
  let lastTime: number | null = null
  let counts: TaskCounts | null = null
  for (const text of readLastLines(path)) {
    const parsed = parseLine(text)
    if (parsed.kind !== 'line') continue
    const { line } = parsed
    if (line.section === 'metric') {
      const of = (state: string): number | null => numberOf(line[`tasks_${state}`])
      counts = { done: of('completed'), failed: of('failed'), canceled: of('canceled') }
    }
    if (line.section !== 'event') continue
    lastTime = line.event_time
    if (line.event_type === 'SessionEnded') endTime = line.event_time
  }
  return { endTime, lastTime, counts: endTime === null ? null : counts }
}

/** The end of a compressed record cannot be read alone. */
function readLastLines(path: string): readonly string[] {
  const size = statOf(path)?.size ?? 0
  if (size === 0 || isCompressed(path)) return []
  const file = openRegularFileSync(path)
  try {
    const bytes = Buffer.alloc(Math.min(tailBytes, size))
    const length = readSync(file, bytes, 0, bytes.length, size - bytes.length)
    const lines = bytes.toString('utf8', 0, length).split('\n')
    return bytes.length < size ? lines.slice(1) : lines
  } finally {
    closeSync(file)
  }
}

/** Returns the path of a record in the folder; `null` for any other name. */
export function findInFolder(folder: string, name: string): string | null {
  const path = join(folder, name)
  const isRecord = basename(path) === name && parseRecordPath(path) !== null
  return isRecord && statOf(path)?.isFile() === true ? path : null
}
