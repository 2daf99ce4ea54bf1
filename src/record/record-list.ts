/**
 * Lists the records of a folder. Reads only the beginning and the end of each file, because a
 * folder may have thousands of large records.
 */

import { basename, dirname } from 'node:path'
import { readSessionStart } from '../checkpoint/chain.ts'
import { isCompressed } from '../checkpoint/compressed.ts'
import { type CheckpointLine, type EventLine, parseLine } from '../checkpoint/format.ts'
import { listRecords, type RecordFile, sortNewestFirst } from '../checkpoint/record-names.ts'
import { openRegularFile } from '../foundation/regular-file.ts'
import { numberOf } from '../views/panel.ts'
import type { RecordState } from '../views/panels/run.ts'
import type { RecordWriterStates } from './record-views.ts'

/** One record file. A field is `null` if its value is not in the beginning or end of the file. */
export interface ListedRecord {
  readonly file: string
  readonly sessionId: string
  readonly state: RecordState
  readonly startTime: number | null
  readonly durationSeconds: number | null
  readonly bytes: number
  readonly done: number | null
  readonly failed: number | null
  readonly canceled: number | null
}

export interface RecordList {
  /** The newest record comes first. */
  readonly records: readonly ListedRecord[]
  readonly total: number
}

const maxListed = 1000
const tailBytes = 262_144

/** Leaves out files that have no complete line. Never rejects because of a file's content. */
export async function listFolder(folder: string, writers: RecordWriterStates): Promise<RecordList> {
  const all = sortNewestFirst(listRecords(folder))
  const records: ListedRecord[] = []
  for (const record of all.slice(0, maxListed)) {
    const listed = await readRecord(record, writers).catch(() => null)
    if (listed !== null) records.push(listed)
  }
  return { records, total: records.length + Math.max(0, all.length - maxListed) }
}

async function readRecord(
  { path, sessionId }: RecordFile,
  writers: RecordWriterStates,
): Promise<ListedRecord | null> {
  const start = await readSessionStart(path)
  const { lines, bytes, isWhole } = await readTail(path)
  if (start === null && lines.length === 0) return null
  const events = lines.filter((line): line is EventLine => line.section === 'event')
  const end = events.findLast(({ event_type: type }) => type === 'SessionEnded')
  const last = events.at(-1)?.event_time ?? null
  const startTime = start?.event_time ?? null
  const isOpen = end === undefined && !isCompressed(path)
  const isWritten = isOpen && (await writers.isWriting(dirname(path), sessionId))
  const elapsedSeconds = startTime === null || last === null ? null : Math.max(0, last - startTime)
  return {
    file: basename(path),
    sessionId,
    state: isWritten ? 'running' : isOpen ? 'interrupted' : 'ended',
    startTime,
    durationSeconds: numberOf(end?.['duration_seconds']) ?? elapsedSeconds,
    bytes,
    ...countTasks(lines, isWhole),
  }
}

interface Tail {
  readonly lines: readonly CheckpointLine[]
  readonly bytes: number
  /** Whether the lines contain the whole record. */
  readonly isWhole: boolean
}

/** Reads the last lines. Returns none for a compressed record, which has no readable end. */
async function readTail(path: string): Promise<Tail> {
  await using file = await openRegularFile(path)
  const { size: bytes } = await file.stat()
  if (isCompressed(path)) return { lines: [], bytes, isWhole: false }
  const from = Math.max(0, bytes - tailBytes)
  const buffer = Buffer.alloc(bytes - from)
  const { bytesRead } = await file.read(buffer, 0, buffer.length, from)
  const texts = buffer.toString('utf8', 0, bytesRead).split('\n')
  // The first line of a tail and the last line of a growing record may be incomplete.
  const whole = texts.slice(from === 0 ? 0 : 1, -1)
  const lines = whole.flatMap((text) => {
    const parsed = parseLine(text)
    return parsed.kind === 'line' ? [parsed.line] : []
  })
  return { lines, bytes, isWhole: from === 0 }
}

type TaskCounts = Pick<ListedRecord, 'done' | 'failed' | 'canceled'>

/**
 * Counts the terminal events if the lines are the whole record. Otherwise, takes the counts from
 * the last metric line.
 */
function countTasks(lines: readonly CheckpointLine[], isWhole: boolean): TaskCounts {
  const metrics = lines.findLast((line) => line.section === 'metric')
  if (isWhole) {
    const countOf = (type: string): number =>
      lines.filter((line) => line.section === 'event' && line.event_type === type).length
    return {
      done: countOf('TaskCompleted'),
      failed: countOf('TaskFailed'),
      canceled: countOf('TaskCanceled'),
    }
  }
  return {
    done: numberOf(metrics?.['tasks_completed']),
    failed: numberOf(metrics?.['tasks_failed']),
    canceled: numberOf(metrics?.['tasks_canceled']),
  }
}
