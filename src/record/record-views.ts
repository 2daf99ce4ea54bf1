/** Computes the views of a record in one pass over all lines, or over those after a snapshot. */

import { dirname } from 'node:path'
import { findChain, isPipe } from '../checkpoint/chain.ts'
import type { CheckpointLine, EventLine, MetricLine } from '../checkpoint/format.ts'
import { isBeingWritten } from '../checkpoint/lock.ts'
import {
  type BadLine,
  type LinePosition,
  readBatches,
  type ReadOptions,
  type ReadSummary,
} from '../checkpoint/reader.ts'
import { parseRecordPath } from '../checkpoint/record-names.ts'
import { systemClock } from '../foundation/clock.ts'
import { statOf } from '../foundation/regular-file.ts'
import { createRunPass, type RunPass } from '../views/all-panels.ts'
import { type RecordState, run } from '../views/panels/run.ts'
import type { ScopeFilter } from '../views/panels/scopes.ts'
import { readSnapshot, type ReadProgress, writeSnapshot } from './snapshot.ts'

export interface RecordViewOptions {
  /**
   * `use` starts from the snapshot next to the record; `write` also writes a new one; `ignore`
   * reads everything; `renew` reads everything and writes a snapshot. Default `use`.
   */
  readonly snapshot?: 'use' | 'write' | 'ignore' | 'renew'
  /**
   * Whether to load each state from the snapshot on first access. If the state is damaged, that
   * access throws `SnapshotDamagedError`. Default `false`: all states are loaded and checked first.
   */
  readonly onDemand?: boolean
  /**
   * Stops at the first event that was emitted after this time, in wall-clock seconds. No snapshot
   * is used. Default: the whole run.
   */
  readonly until?: number
  /** Leaves out tasks of other scopes. No snapshot is used. Default: all tasks. */
  readonly scope?: ScopeFilter | null
  readonly signal?: AbortSignal
  /** Called after each block of a file, with the byte offset that was reached. */
  readonly onRead?: (bytes: number, path: string) => void
  /** Called for each skipped line, except a torn last line. */
  readonly onBadLine?: (bad: BadLine, file: string) => void
  /** Called for each event that is read, but not for those of the snapshot. */
  readonly onEvent?: (event: EventLine) => void
}

export interface RecordViews extends Omit<ReadSummary, 'bytes' | 'end'> {
  readonly pass: RunPass
  /** The files of the run, oldest first. */
  readonly files: readonly string[]
  /** The name of an earlier file that is missing from the folder; `null` if all files exist. */
  readonly missing: string | null
  /** The last metric line; `null` if there is none. */
  readonly metrics: Readonly<Record<string, unknown>> | null
  /** The number of bytes read from files. The rest came from the snapshot. */
  readonly bytesRead: number
}

/**
 * Reads a record. Rejects with a `CheckpointError` if a file cannot be read, but never because of
 * its content.
 */
export async function readViews(
  path: string,
  options: RecordViewOptions = {},
): Promise<RecordViews> {
  const { files, missing } = await findChain(path)
  const { snapshot = 'use', until = Infinity, onDemand = false, scope = null } = options
  const isWholeRun = until === Infinity && scope === null
  const mayUseSnapshot = (snapshot === 'use' || snapshot === 'write') && isWholeRun
  const mayWrite = (snapshot === 'write' || snapshot === 'renew') && isWholeRun
  const reading = mayUseSnapshot ? await openReading(files, onDemand) : new RecordReading()
  await reading.readAll(files, options)
  const { pass, read, bytesRead } = reading
  const isComplete = bytesRead > 0 && !reading.endsWithoutNewline
  if (mayWrite && isComplete && !isPipe(path)) {
    await writeSnapshot(files, { read, states: { counts: pass.counts, panels: pass.states } })
  }
  return reading.views(files, missing)
}

/** For smaller records, reading the record again is cheaper than storing a snapshot. */
const minSnapshotBytes = 32 * 2 ** 20

/** Whether a command that has read the record should store a snapshot next to it. */
export const shouldStoreSnapshot = (path: string): boolean =>
  (statOf(path)?.size ?? 0) > minSnapshotBytes

/** Returns the state of a record. A process on another host that holds its lock counts as alive. */
function readState({ pass, files }: Pick<RecordViews, 'pass' | 'files'>): {
  readonly sessionId: string
  readonly state: RecordState
} {
  const { sessionId: recordedId, endTime } = run.show(pass.states.run)
  const last = files.at(-1) ?? '.'
  // A file that was just created has the session id only in its name.
  const sessionId = recordedId || (parseRecordPath(last)?.sessionId ?? '')
  if (endTime !== null) return { sessionId, state: 'ended' }
  const isRunning = isBeingWritten(dirname(last), sessionId)
  return { sessionId, state: isRunning ? 'running' : 'interrupted' }
}

/** Determines whether the process that holds a record's lock is alive. */
export interface RecordWriterStates {
  isWriting(folder: string, sessionId: string): Promise<boolean>
}

/**
 * Returns the current state of a record. If its lock is held, asks `writers` whether the process is
 * alive. For a running session, `now` is the current time, because tasks continue between two
 * events.
 */
export async function readCurrentState(
  views: RecordViews,
  writers: RecordWriterStates,
): Promise<{ readonly sessionId: string; readonly state: RecordState; readonly now: number }> {
  const found = readState(views)
  const { lastTime } = run.show(views.pass.states.run)
  if (found.state !== 'running') return { ...found, now: lastTime }
  const isRunning = await writers.isWriting(dirname(views.files.at(-1) ?? '.'), found.sessionId)
  if (!isRunning) return { ...found, state: 'interrupted', now: lastTime }
  // The clock of the host that writes the record may be ahead of this one.
  return { ...found, now: Math.max(lastTime, systemClock.now()) }
}

type FollowOptions = Pick<RecordViewOptions, 'signal' | 'onRead' | 'onBadLine' | 'onEvent'>

/** Reads a record while it is being written. */
export class RecordFollower {
  readonly #path: string
  #reading: RecordReading | null = null
  #files: readonly string[] = []
  #missing: string | null = null

  constructor(path: string) {
    this.#path = path
  }

  /** The views of what has been read so far; `null` before the files are open. */
  get views(): RecordViews | null {
    return this.#reading?.views(this.#files, this.#missing) ?? null
  }

  /** The position that was reached in the last file. */
  get position(): LinePosition {
    return this.#reading?.read.ends[this.#files.length - 1] ?? { line: 1, offset: 0 }
  }

  /** Reads the lines that were written since the last call. `pass` is the same object each time. */
  async read(options: FollowOptions = {}): Promise<RecordViews> {
    if (this.#reading === null) {
      const { files, missing } = await findChain(this.#path)
      this.#files = files
      this.#missing = missing
      this.#reading = await openReading(files)
    }
    await this.#reading.readAll(this.#files, options, { onlyWholeLines: true })
    return this.#reading.views(this.#files, this.#missing)
  }

  /** Stores a snapshot next to the record, so that other readers need not read all of it again. */
  async writeSnapshot(): Promise<void> {
    if (this.#reading === null) return
    const { pass, read } = this.#reading
    await writeSnapshot(this.#files, { read, states: { counts: pass.counts, panels: pass.states } })
  }
}

/** Starts from a snapshot. If the last file has none, uses the snapshot of an earlier file. */
async function openReading(files: readonly string[], onDemand = false): Promise<RecordReading> {
  for (let count = files.length; count > 0; count--) {
    const found = await readSnapshot(files.slice(0, count), onDemand && count === files.length)
    if (found !== null) return new RecordReading(createRunPass(found.states), found.read)
  }
  return new RecordReading()
}

const emptyProgress: ReadProgress = { ends: [], lines: 0, bad: 0, unknown: 0, metrics: null }

class RecordReading {
  readonly pass: RunPass
  read: ReadProgress
  torn: BadLine | null = null
  bytesRead = 0
  /** Whether the last line has no newline. A snapshot would cause this line to be read twice. */
  endsWithoutNewline = false
  #metrics: MetricLine | null = null
  #isPastUntil = false

  constructor(pass: RunPass = createRunPass(), read: ReadProgress = emptyProgress) {
    this.pass = pass
    this.read = read
  }

  async readAll(
    files: readonly string[],
    options: RecordViewOptions,
    further: Pick<ReadOptions, 'onlyWholeLines'> = {},
  ): Promise<void> {
    for (const [at, file] of files.entries()) {
      const isRead = at < this.read.ends.length - 1
      if (!isRead && !this.#isPastUntil) await this.#readFile(file, at, { ...options, ...further })
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
    const from: LinePosition = this.read.ends[at] ?? { line: 1, offset: 0 }
    const batches = readBatches(file, {
      skipSpans: true,
      keepRequestSpans: true,
      onlyWholeLines,
      from,
      ...(signal === undefined ? {} : { signal }),
      ...(onRead === undefined ? {} : { onRead }),
      ...(onBadLine === undefined ? {} : { onBadLine: (bad: BadLine) => onBadLine(bad, file) }),
    })
    let batch = await batches.next()
    try {
      while (batch.done !== true && !this.#isPastUntil) {
        this.#applyLines(batch.value, until, options)
        batch = await batches.next()
      }
    } finally {
      // Closes the file, unless it was read to its end.
      await batches.return(undefined as never)
    }
    if (batch.done !== true) return
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

  #applyLines(
    lines: readonly CheckpointLine[],
    until: number,
    { scope = null, onEvent }: Pick<RecordViewOptions, 'scope' | 'onEvent'>,
  ): void {
    for (const line of lines) {
      if (line.section === 'metric') this.#metrics = line
      if (line.section === 'span') {
        if (scope === null && line.end_time <= until) this.pass.takeSpan(line)
        continue
      }
      if (line.section !== 'event') continue
      if (line.emit_time > until) {
        this.#isPastUntil = true
        return
      }
      if (scope !== null && !scope.keeps(line)) continue
      this.pass.take(line)
      onEvent?.(line)
    }
  }
}
