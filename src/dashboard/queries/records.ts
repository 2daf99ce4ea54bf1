/** The runs of a folder, from the beginning and the end of their records alone. */

import { closeSync, readSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { readSessionStart } from '../../checkpoint/chain.ts'
import { isCompressed } from '../../checkpoint/compressed.ts'
import { parseLine } from '../../checkpoint/format.ts'
import { parseRecordPath, sortNewestFirst } from '../../checkpoint/record-names.ts'
import { openRegularFileSync, statOf } from '../../foundation/regular-file.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { findRuns, type StoredRun } from '../../record/stored-runs.ts'
import { numberOf } from '../../views/panel.ts'
import type { RecordsView } from '../protocol.ts'
import { describeNotShown } from './shown-texts.ts'

type RecordRow = RecordsView['records'][number]

const maxRows = 200
/** The size of the last part of a record that has the last metric line and SessionEnded. */
const tailBytes = 65_536

export async function showRecords(
  folder: string,
  writers: RecordWriterStates,
): Promise<RecordsView> {
  const runs = await findRuns(folder)
  const newest = runs.toSorted((a, b) => b.lastSeconds - a.lastSeconds)
  const records: RecordRow[] = []
  for (const run of newest.slice(0, maxRows)) records.push(await toRow(run, writers))
  return { records, notShown: describeNotShown([runs.length - records.length, 'older run']) }
}

/** A resumed run has several files. The last one is opened, and has the latest counts. */
async function toRow(
  { files, sessionId }: StoredRun,
  writers: RecordWriterStates,
): Promise<RecordRow> {
  const records = files.flatMap(({ path }) => parseRecordPath(path) ?? [])
  const path = sortNewestFirst(records)[0]?.path ?? ''
  const start = await readSessionStart(path).catch(() => null)
  const { endTime, lastTime, metrics } = readTail(path)
  const hasEnded = endTime !== null
  const isRunning = !hasEnded && (await writers.isWriting(dirname(path), sessionId))
  const last = endTime ?? lastTime ?? statSeconds(path)
  const startTime = start?.event_time ?? null
  return {
    file: basename(path),
    sessionId,
    state: hasEnded ? 'ended' : isRunning ? 'running' : 'interrupted',
    startTime,
    durationSeconds: startTime === null || last === null ? null : Math.max(0, last - startTime),
    bytes: records.reduce((sum, one) => sum + (statOf(one.path)?.size ?? 0), 0),
    done: numberOf(metrics['tasks_completed']),
    failed: numberOf(metrics['tasks_failed']),
    canceled: numberOf(metrics['tasks_canceled']),
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
  /** The last metric line; empty if there is none. */
  readonly metrics: Readonly<Record<string, unknown>>
}

function readTail(path: string): RecordTail {
  let endTime: number | null = null
  let lastTime: number | null = null
  let metrics = {}
  for (const text of readLastLines(path)) {
    const parsed = parseLine(text)
    if (parsed.kind !== 'line') continue
    const { line } = parsed
    if (line.section === 'metric') metrics = line
    if (line.section !== 'event') continue
    lastTime = line.event_time
    if (line.event_type === 'SessionEnded') endTime = line.event_time
  }
  return { endTime, lastTime, metrics }
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
