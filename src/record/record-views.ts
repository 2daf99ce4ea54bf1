/** The views of a record: one pass over all files of its run, or from a snapshot onwards. */

import { dirname } from 'node:path'
import { findChain, isPipe } from '../checkpoint/chain.ts'
import type { CheckpointLine, MetricLine } from '../checkpoint/format.ts'
import { isBeingWritten } from '../checkpoint/lock.ts'
import { type BadLine, type LinePosition, readBatches } from '../checkpoint/reader.ts'
import type { ReadOptions } from '../checkpoint/reader.ts'
import { parseRecordPath } from '../checkpoint/record-names.ts'
import { systemClock } from '../foundation/clock.ts'
import { statOf } from '../foundation/regular-file.ts'
import { createRunPass, type RunPass } from '../views/all-panels.ts'
import { type RecordState, run } from '../views/panels/run.ts'
import type { ScopeFilter } from '../views/panels/scopes.ts'
import { readSnapshot, type ReadSoFar, writeSnapshot } from './snapshot.ts'

export interface RecordViewOptions {
  /**
   * `use` starts from the snapshot next to the record; `write` also writes one for the next reader;
   * `ignore` reads everything; `renew` reads everything and writes a new one. Default `use`.
   */
  readonly snapshot?: 'use' | 'write' | 'ignore' | 'renew'
  /**
   * Loads each state from the snapshot on first access, which throws `SnapshotDamagedError` if it
   * is damaged. Default `false`: loads and checks all states first.
   */
  readonly onDemand?: boolean
  /**
   * Replays the run up to this time, in wall-clock seconds: stops at the first event that was
   * emitted later, and uses no snapshot. Default: the whole run.
   */
  readonly until?: number
  /** Leaves out tasks of other scopes. Uses no snapshot. Default: all tasks. */
  readonly scope?: ScopeFilter | null
  readonly signal?: AbortSignal
  /** Called after each block with the byte offset reached in a file, and its path. */
  readonly onRead?: (bytes: number, path: string) => void
  /** Called for each skipped line, except a torn last one. */
  readonly onBadLine?: (bad: BadLine, file: string) => void
}

export interface RecordViews {
  readonly pass: RunPass
  /** The files of the run, oldest first. */
  readonly files: readonly string[]
  /** The name of an earlier file that does not exist; its content is missing from the views. */
  readonly missing: string | null
  readonly lines: number
  /** The number of skipped lines. */
  readonly bad: number
  /** The number of lines with an unknown section. */
  readonly unknown: number
  /** The torn last line of the last file. */
  readonly torn: BadLine | null
  /** The last metric line. */
  readonly metrics: Readonly<Record<string, unknown>> | null
  /** The number of bytes that were read; the rest came from the snapshot. */
  readonly bytesRead: number
}

/** Rejects with `CheckpointError` when a file cannot be read, but never for its content. */
export async function readViews(
  path: string,
  options: RecordViewOptions = {},
): Promise<RecordViews> {
  const { files, missing } = await findChain(path)
  const { snapshot = 'use', until = Infinity, onDemand = false, scope = null } = options
  const isWhole = until === Infinity && scope === null
  const mayUse = (snapshot === 'use' || snapshot === 'write') && isWhole
  const mayWrite = (snapshot === 'write' || snapshot === 'renew') && isWhole
  const reading = mayUse ? await fromSnapshot(files, onDemand) : new RecordReading()
  await reading.readAll(files, options)
  const { pass, read, bytesRead } = reading
  const isComplete = bytesRead > 0 && !reading.endsWithoutNewline
  if (mayWrite && isComplete && !isPipe(path)) {
    await writeSnapshot(files, { read, states: { counts: pass.counts, panels: pass.states } })
  }
  return reading.views(files, missing)
}

/** For smaller records, reading again is cheaper than storing a snapshot. */
const minKeptBytes = 32 * 2 ** 20

/** Whether a command that reads the record should store a snapshot next to it. */
export const isWorthKeeping = (path: string): boolean => (statOf(path)?.size ?? 0) > minKeptBytes

/** Returns the session of the record and its state; a held lock counts as a live process. */
function stateOf({ pass, files }: Pick<RecordViews, 'pass' | 'files'>): {
  readonly sessionId: string
  readonly state: RecordState
} {
  const { sessionId: ownId, endTime } = run.show(pass.states.run)
  const last = files.at(-1) ?? '.'
  // A file that was just created has the session id only in its name.
  const sessionId = ownId || (parseRecordPath(last)?.sessionId ?? '')
  if (endTime !== null) return { sessionId, state: 'ended' }
  const isRunning = isBeingWritten(dirname(last), sessionId)
  return { sessionId, state: isRunning ? 'running' : 'interrupted' }
}

/** Determines whether the process that holds the lock of a record is alive. */
export interface RecordWriterStates {
  isWriting(folder: string, sessionId: string): Promise<boolean>
}

/**
 * Returns the state of a record; asks `writers` if its lock is held. For a running session, `now`
 * is the current time, because tasks continue between two events.
 */
export async function stateNow(
  views: RecordViews,
  writers: RecordWriterStates,
): Promise<{ readonly sessionId: string; readonly state: RecordState; readonly now: number }> {
  const found = stateOf(views)
  const { lastTime } = run.show(views.pass.states.run)
  if (found.state !== 'running') return { ...found, now: lastTime }
  const isRunning = await writers.isWriting(dirname(views.files.at(-1) ?? '.'), found.sessionId)
  if (!isRunning) return { ...found, state: 'interrupted', now: lastTime }
  // The clock of another host may be ahead of this one.
  return { ...found, now: Math.max(lastTime, systemClock.now()) }
}

/** Reads a growing record repeatedly. */
export class RecordFollower {
  readonly #path: string
  #reading: RecordReading | null = null
  #files: readonly string[] = []
  #missing: string | null = null

  constructor(path: string) {
    this.#path = path
  }

  /** Reads the lines written since the last call. Always returns the same `pass`. */
  async read(signal?: AbortSignal): Promise<RecordViews> {
    if (this.#reading === null) {
      const { files, missing } = await findChain(this.#path)
      this.#files = files
      this.#missing = missing
      this.#reading = await fromSnapshot(files)
    }
    const options = signal === undefined ? {} : { signal }
    await this.#reading.readAll(this.#files, options, { onlyWholeLines: true })
    return this.#reading.views(this.#files, this.#missing)
  }
}

/** Uses the snapshot of an earlier file if the last one has none. */
async function fromSnapshot(files: readonly string[], onDemand = false): Promise<RecordReading> {
  for (let count = files.length; count > 0; count--) {
    const found = await readSnapshot(files.slice(0, count), onDemand && count === files.length)
    if (found !== null) return new RecordReading(createRunPass(found.states), found.read)
  }
  return new RecordReading()
}

const nothing: ReadSoFar = { ends: [], lines: 0, bad: 0, unknown: 0, metrics: null }

/** A pass in progress over the files of one run. */
class RecordReading {
  readonly pass: RunPass
  read: ReadSoFar
  torn: BadLine | null = null
  bytesRead = 0
  /** Whether the last line has no newline: with a snapshot, that line would be read twice. */
  endsWithoutNewline = false
  #metrics: MetricLine | null = null
  #isOver = false

  constructor(pass: RunPass = createRunPass(), read: ReadSoFar = nothing) {
    this.pass = pass
    this.read = read
  }

  async readAll(
    files: readonly string[],
    options: RecordViewOptions,
    further: Pick<ReadOptions, 'onlyWholeLines'> = {},
  ): Promise<void> {
    for (const [at, file] of files.entries()) {
      const isDone = at < this.read.ends.length - 1
      if (!isDone && !this.#isOver) await this.#readFile(file, at, { ...options, ...further })
    }
  }

  views(files: readonly string[], missing: string | null): RecordViews {
    const { pass, torn, bytesRead } = this
    const { lines, bad, unknown, metrics } = this.read
    return { pass, files, missing, lines, bad, unknown, torn, metrics, bytesRead }
  }

  async #readFile(
    file: string,
    at: number,
    options: RecordViewOptions & Pick<ReadOptions, 'onlyWholeLines'>,
  ): Promise<void> {
    const { signal, onRead, onBadLine, until = Infinity, onlyWholeLines = false } = options
    const { scope = null } = options
    const from: LinePosition = this.read.ends[at] ?? { line: 1, offset: 0 }
    const batches = readBatches(file, {
      skipSpans: true,
      onlyWholeLines,
      from,
      ...(signal === undefined ? {} : { signal }),
      ...(onRead === undefined ? {} : { onRead }),
      ...(onBadLine === undefined ? {} : { onBadLine: (bad: BadLine) => onBadLine(bad, file) }),
    })
    let batch = await batches.next()
    while (batch.done !== true && !this.#isOver) {
      this.#take(batch.value, until, scope)
      batch = await batches.next()
    }
    if (batch.done !== true) {
      await batches.return(undefined as never)
      return
    }
    const { lines, bad, unknown, torn, bytes, end } = batch.value
    this.torn = torn
    this.endsWithoutNewline = torn === null && bytes !== end.offset
    this.bytesRead += bytes - from.offset
    this.read = {
      ends: [...this.read.ends.slice(0, at), end],
      lines: this.read.lines + lines,
      bad: this.read.bad + bad,
      unknown: this.read.unknown + unknown,
      metrics: this.#metrics ?? this.read.metrics,
    }
  }

  #take(lines: readonly CheckpointLine[], until: number, scope: ScopeFilter | null): void {
    for (const line of lines) {
      if (line.section === 'metric') this.#metrics = line
      if (line.section !== 'event') continue
      if (line.emit_time > until) {
        this.#isOver = true
        return
      }
      if (scope === null || scope.keeps(line)) this.pass.take(line)
    }
  }
}
