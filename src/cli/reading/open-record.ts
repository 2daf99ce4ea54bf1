/** Opens the record that a reading command names, with progress, and reports its problems. */

import { isCompressed } from '../../checkpoint/compressed.ts'
import type { ReadOptions } from '../../checkpoint/reader.ts'
import { type Clock, systemClock } from '../../foundation/clock.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { countText, numberText, quoteArgument } from '../../views/readable.ts'
import { basename, dirname, resolve } from 'node:path'
import { isPipe } from '../../checkpoint/chain.ts'
import { parseRecordPath } from '../../checkpoint/record-names.ts'
import { findRepaired } from '../../checkpoint/repair.ts'
import { StateError } from '../../foundation/errors.ts'
import { findRecord, isNotARecord, notARecordError, toShortPath } from '../../record/find-record.ts'
import {
  shouldStoreSnapshot,
  type RecordViewOptions,
  type RecordViews,
  readViews,
  readCurrentState,
} from '../../record/record-views.ts'
import type { RecordState } from '../../views/panels/run.ts'
import { ScopeFilter } from '../../views/panels/scopes.ts'
import { SnapshotDamagedError } from '../../record/snapshot-parts.ts'
import { exitCodes } from '../exit.ts'
import type { Output } from '../output.ts'
import { RecordWriters } from './record-writer.ts'

export interface OpenRecord extends RecordViews {
  readonly path: string
  readonly sessionId: string
  readonly state: RecordState
  /**
   * The current time if the session is running, otherwise the time of the last event, in seconds.
   */
  readonly now: number
}

/**
 * Reads a record, or only the tasks of a scope, and calls `show`. `show` is called again if a
 * stored view is damaged, so it must print nothing before it has read all views. Resolves with exit
 * code 0.
 */
export async function showRecord(
  source: string,
  output: Output,
  show: (record: OpenRecord) => void | Promise<void>,
  scope?: string,
): Promise<number> {
  const path = await findRecord(source)
  if (scope !== undefined) {
    const filter = new ScopeFilter(scope)
    const record = await openRecord(path, { scope: filter }, output)
    filter.expectSeen(record.state === 'running')
    await show(record)
    return exitCodes.ok
  }
  const isLarge = shouldStoreSnapshot(path)
  try {
    await show(await openRecord(path, { snapshot: isLarge ? 'write' : 'use' }, output))
  } catch (error) {
    if (!(error instanceof SnapshotDamagedError)) throw error
    await show(await openRecord(path, { snapshot: isLarge ? 'renew' : 'ignore' }, output))
  }
  return exitCodes.ok
}

async function openRecord(
  path: string,
  options: Pick<RecordViewOptions, 'snapshot' | 'scope'>,
  output: Output,
): Promise<OpenRecord> {
  const views = await withReadingProgress(output, (followed) =>
    readViews(path, { ...options, onDemand: true, ...followed }),
  )
  if (isNotARecord(path, views)) throw notARecordError(path)
  return { ...views, path, ...(await readCurrentState(views, new RecordWriters())) }
}

async function isGrowing(path: string): Promise<boolean> {
  const sessionId = parseRecordPath(path)?.sessionId ?? basename(path)
  return new RecordWriters().isWriting(dirname(path), sessionId)
}

/** Rejects if a live process writes the record. */
export async function expectNotGrowing(path: string): Promise<void> {
  if (!(await isGrowing(path))) return
  throw new StateError(`${path} is still being written`, {
    code: 'RecordInUseError',
    hint: 'Wait for the end of its session.',
  })
}

/** The shortest argument that names the record, given the working folder. */
export function recordArgument({
  path,
  sessionId,
}: Pick<OpenRecord, 'path' | 'sessionId'>): string {
  if (isPipe(path)) return '-'
  const folder = toShortPath(dirname(resolve(path)))
  const isFoundById = sessionId !== '' && (folder === '' || folder === 'telemetry')
  return quoteArgument(isFoundById ? sessionId : toShortPath(path))
}

/** The JSON fields about the record that every reading command prints. */
export const recordFields = (record: OpenRecord): object => ({
  session_id: record.sessionId || null,
  state: record.state,
  files: record.files,
  skipped_lines: record.bad,
  torn: record.torn !== null && record.state !== 'running',
  missing_previous_file: record.missing,
  // The previous name of the key, kept for one version.
  missing_forerunner: record.missing,
})

export const lostSessionNote =
  'the record has no end of its session: the process was killed, or it ended without closing the ' +
  'session, or it could not write the record'

/** Explains what is missing from the result. */
export function recordNotes(record: OpenRecord): string[] {
  const isLost = record.state === 'interrupted' && record.lines > 0
  return [...(isLost ? [lostSessionNote] : []), ...gapNotes(record, record.state === 'running')]
}

/** The parts of a record that could not be read. */
export type RecordGaps = Pick<RecordViews, 'bad' | 'torn' | 'missing'>

/** Like `recordNotes`, for a command that reads lines instead of views. */
export const lineGapNotes = async (path: string, gaps: RecordGaps): Promise<string[]> =>
  gapNotes({ path, ...gaps }, await isGrowing(path))

function gapNotes(
  { path, bad, torn, missing }: RecordGaps & { readonly path: string },
  isRunning: boolean,
): string[] {
  const notes: string[] = []
  if (bad > 0) {
    const check = `npx tutti journal verify ${quoteArgument(toShortPath(path))}`
    const copy = isPipe(path) ? null : findRepaired(path)
    const repaired = copy === null ? '' : `; its repaired copy is ${toShortPath(copy)}`
    notes.push(`${countText(bad, 'line')} skipped; see ${check}${repaired}`)
  }
  // The last line of a growing record is usually incomplete.
  if (torn !== null && !isRunning) notes.push(`torn tail at line ${torn.line}`)
  if (missing !== null) notes.push(`the earlier file ${missing} of the run is missing`)
  return notes
}

/** Progress is shown only if reading takes longer than this. */
const initialDelayMs = 1000
const updateIntervalMs = 250

/** Options that stop a reader, and report its position. */
export type ReadingHooks = Required<Pick<ReadOptions, 'signal' | 'onRead'>>

/** Shows progress while `read` runs, and removes the progress line afterwards. */
export async function withReadingProgress<Result>(
  output: Output,
  read: (followed: ReadingHooks) => Promise<Result>,
  clock: Pick<Clock, 'monotonicMs'> = systemClock,
): Promise<Result> {
  const signal = output.closed
  if (output.terminal?.isTTY !== true) return await read({ signal, onRead() {} })
  let nextAt = clock.monotonicMs() + initialDelayMs
  let isDrawn = false
  const onRead = (bytes: number, path: string): void => {
    const now = clock.monotonicMs()
    if (now < nextAt) return
    nextAt = now + updateIntervalMs
    isDrawn = true
    output.progress([`reading ${basename(path)}  ${describe(bytes, path)}`])
  }
  try {
    return await read({ signal, onRead })
  } finally {
    if (isDrawn) output.progress([])
  }
}

/**
 * Describes the position in a file. For a compressed file, the total number of bytes is unknown.
 */
function describe(bytes: number, path: string): string {
  const size = isCompressed(path) ? 0 : (statOf(path)?.size ?? 0)
  if (size < bytes) return megabytes(bytes)
  return `${Math.floor((100 * bytes) / size)} % of ${megabytes(size)}`
}

const megabytes = (bytes: number): string => `${numberText(Math.round(bytes / 1e6))} MB`
