/** Reads a record, which may be growing, and answers queries about the part that it has read. */

import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { Clock } from '../../foundation/clock.ts'
import {
  CheckpointError,
  errnoOf,
  messageOf,
  StateError,
  tryRead,
} from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { statOf } from '../../foundation/regular-file.ts'
import {
  readCurrentState,
  RecordFollower,
  type RecordViews,
  type RecordWriterStates,
  shouldStoreSnapshot,
} from '../../record/record-views.ts'
import { makeReport, SkippedLines } from '../../report/report.ts'
import { createRunPass } from '../../views/all-panels.ts'
import type { RecordState } from '../../views/panels/run.ts'
import type { ViewEvent } from '../../views/panel.ts'
import { countText, timeText } from '../../views/readable.ts'
import { EventRing, readLatestEvents } from './event-ring.ts'
import type { ViewQuery } from '../protocol.ts'
import { answerQuery, answersRevision, freeAnswers } from '../queries/queries.ts'
import type { QuerySource, TelemetryFacts } from '../queries/query-source.ts'
import { FileMark } from './file-mark.ts'
import { Replay } from './replay.ts'
import { TaskRecords } from './task-records.ts'

export interface RecordFoldParts {
  readonly path: string
  readonly clock: Clock
  readonly writers: RecordWriterStates
}

interface AnswerOptions {
  readonly telemetry?: TelemetryFacts | null
  /** If it is aborted, stops reading the record, unless other answers wait for the same read. */
  readonly signal?: AbortSignal
}

/** How often a record is read while a viewer requests it, by file system. */
const localIntervalMs = 250
const networkIntervalMs = 1000
/** How long `refresh` waits for a reading. A longer one continues in the background. */
const maxWaitMs = 200

/** If more bytes than this are unread, the page says so. */
const maxBytesBehind = 2 ** 20

interface FilePosition {
  readonly file: string
  readonly offset: number
}

interface Moment {
  readonly sessionId: string
  readonly state: RecordState
  readonly now: number
}

/** The queries whose answers contain latest events. */
const withEvents: ReadonlySet<ViewQuery['kind']> = new Set(['events', 'task'])

const noMoment: Moment = { sessionId: '', state: 'running', now: 0 }

export class RecordFold {
  readonly #parts: RecordFoldParts
  readonly #intervalMs: Promise<number>
  #follower: RecordFollower
  #fileMark: FileMark | null = null
  /** The latest events of a compressed record, whose end cannot be read alone. */
  #ring = new EventRing()
  #replay: Replay
  #tasks: TaskRecords
  #moment = noMoment
  #reading: Promise<void> | null = null
  #lastReadMs = -Infinity
  #isFirstReading = true
  #reachedPosition: FilePosition = { file: '', offset: 0 }
  /** The events before this position are in the views. */
  #appliedPosition: FilePosition = { file: '', offset: 0 }
  #changes = 0
  /** Why the record cannot be read; empty if it can. */
  #problem = ''
  #restart = ''
  #isDiskFull = false
  #skipped = new SkippedLines()

  constructor(parts: RecordFoldParts) {
    this.#parts = parts
    this.#follower = new RecordFollower(parts.path)
    this.#replay = new Replay(parts.path)
    this.#tasks = new TaskRecords(parts.clock)
    this.#intervalMs = findInterval(parts.path)
  }

  /** Reads what is new, if the last reading was long enough ago. See `ViewSource.refresh`. */
  async refresh(): Promise<string> {
    const { clock } = this.#parts
    const isDue = clock.monotonicMs() - this.#lastReadMs >= (await this.#intervalMs)
    if (isDue) void this.#startReading()
    if (this.#reading !== null) {
      await boundedWait(clock, maxWaitMs, this.#reading).catch(() => undefined)
    }
    const { state, now } = this.#moment
    const pass = this.#follower.views?.pass
    const revision = pass === undefined ? 0 : answersRevision(pass)
    const changes = `${this.#changes}.${this.#tasks.revision}`
    return `${changes}.${revision}.${state}.${state === 'running' ? Math.floor(now) : ''}`
  }

  /** The report of the run, in pieces. Reads only what is new, because the run may be large. */
  async report(): Promise<Iterable<string>> {
    await this.#reading
    await this.#startReading()
    const { views } = this.#follower
    if (views === null || this.#problem !== '') throw new StateError(this.#problem)
    freeAnswers(views.pass)
    const { path, writers } = this.#parts
    return await makeReport(path, { writers, content: { views, skipped: this.#skipped } })
  }

  async answer(query: ViewQuery, options: AnswerOptions = {}): Promise<string> {
    const { telemetry = null, signal = new AbortController().signal } = options
    const at = (time: number): Promise<QuerySource> => this.#sourceAt(time, signal)
    const events = withEvents.has(query.kind) ? await this.#readLatestEvents() : []
    return JSON.stringify(await answerQuery({ ...this.#source(), events, at, telemetry }, query))
  }

  /**
   * Reads the end of the file again instead of keeping new events. Kept events would cause more
   * work for the threads that collect garbage, which have the priority of the run.
   */
  async #readLatestEvents(): Promise<readonly ViewEvent[]> {
    const { file, offset } = this.#appliedPosition
    const files = this.#follower.views?.files ?? []
    if (isCompressed(files.at(-1) ?? '')) return this.#ring.latest
    const read = files.slice(0, files.indexOf(file) + 1)
    return await readLatestEvents(read, offset).catch(() => [])
  }

  /** Does nothing if a reading is in progress. Resolves when the reading has ended. */
  #startReading(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#lastReadMs = this.#parts.clock.monotonicMs()
      this.#reading = null
    })
    return this.#reading
  }

  async #read(): Promise<void> {
    try {
      await this.#startAfreshIfReplaced(this.#fileMark)
      const mark = this.#fileMark ?? (await FileMark.ofBeginning(this.#parts.path))
      const before = this.#follower.views?.lines
      const views = await this.#follower.read({
        onRead: (offset, file) => this.#noteProgress(file, offset),
        onBadLine: this.#skipped.add,
        ...(isCompressed(this.#parts.path) ? { onEvent: (event) => this.#ring.add(event) } : {}),
      })
      // The mark was made before the reading. A mark made afterwards may be that of a new file.
      if (await this.#startAfreshIfReplaced(mark)) return
      const last = views.files.at(-1) ?? this.#parts.path
      this.#reachedPosition = { file: last, offset: this.#follower.position.offset }
      this.#appliedPosition = this.#reachedPosition
      this.#fileMark = await FileMark.of(last, this.#follower.position)
      if (views.lines !== before || this.#problem !== '' || this.#isFirstReading) this.#changes++
      this.#problem = ''
      this.#moment = await readCurrentState(views, this.#parts.writers)
      this.#isDiskFull = this.#moment.state === 'running' && (await isDiskFull(last))
      if (this.#isFirstReading) await this.#endFirstReading(views, last)
    } catch (error) {
      const problem = describeProblem(error)
      if (problem !== this.#problem) this.#changes++
      this.#problem = problem
    }
  }

  /** Counts each block as a change, so that viewers see the progress of a long reading. */
  #noteProgress(file: string, offset: number): void {
    this.#appliedPosition = this.#reachedPosition
    this.#reachedPosition = { file, offset }
    this.#changes++
  }

  async #endFirstReading(views: RecordViews, last: string): Promise<void> {
    this.#isFirstReading = false
    const isStored = views.bytesRead === 0 || !shouldStoreSnapshot(last)
    if (!isStored && this.#moment.state !== 'running') await this.#follower.writeSnapshot()
  }

  async #startAfreshIfReplaced(mark: FileMark | null): Promise<boolean> {
    const change = await mark?.findChange()
    if (change === undefined || change === null) return false
    const { path, clock } = this.#parts
    this.#follower = new RecordFollower(path)
    this.#fileMark = null
    this.#ring = new EventRing()
    this.#skipped = new SkippedLines()
    this.#replay = new Replay(path)
    this.#tasks.close()
    this.#tasks = new TaskRecords(clock)
    this.#moment = noMoment
    this.#isFirstReading = true
    this.#reachedPosition = { file: '', offset: 0 }
    this.#appliedPosition = this.#reachedPosition
    this.#changes++
    this.#restart = `the record was ${change} at ${timeText(clock.now())}, and was read again`
    return true
  }

  #source(): Omit<QuerySource, 'at' | 'events'> {
    const views = this.#follower.views
    const pass = views?.pass ?? createRunPass()
    const { sessionId, state, now } = this.#moment
    const { lastTime, sessionId: recordedId } = pass.states.run
    const files = views?.files ?? []
    return {
      pass,
      sessionId: sessionId || recordedId,
      state,
      now: Math.max(now, lastTime),
      files,
      metrics: views?.metrics ?? null,
      telemetry: null,
      serving: null,
      reading: this.#progress(files),
      beginsAt: null,
      missing: this.#listMissing(views),
      readTask: async (uid) =>
        views === null || this.#isFirstReading
          ? null
          : await this.#tasks.find(uid, files, views.lines),
    }
  }

  async #sourceAt(time: number, signal: AbortSignal): Promise<QuerySource> {
    const { views, events } = await this.#replay.read(time, signal)
    const at = (other: number): Promise<QuerySource> => this.#sourceAt(other, signal)
    return { ...this.#source(), at, pass: views.pass, now: time, state: 'running', events }
  }

  /** How much was read; `null` if only the latest lines are missing, or if reading fails. */
  #progress(files: readonly string[]): QuerySource['reading'] {
    if (this.#reading === null && !this.#isFirstReading) return null
    if (this.#problem !== '') return null
    const { file, offset } = this.#reachedPosition
    const sizes = files.map((path) => statOf(path)?.size ?? 0)
    const total = sum(sizes)
    const bytes = Math.min(total, sum(sizes.slice(0, files.indexOf(file))) + offset)
    return this.#isFirstReading || total - bytes > maxBytesBehind ? { bytes, total } : null
  }

  #listMissing(views: RecordViews | null): string[] {
    const { bad = 0, torn = null, missing = null } = views ?? {}
    const isTorn = torn !== null && this.#moment.state !== 'running'
    return [
      ...(this.#problem === '' ? [] : [this.#problem]),
      ...(this.#restart === '' ? [] : [this.#restart]),
      ...(this.#isDiskFull ? ['the disk of the record is full, so events may be missing'] : []),
      ...(bad > 0 ? [`${countText(bad, 'line')} skipped`] : []),
      ...(isTorn ? [`torn tail at line ${torn.line}`] : []),
      ...(missing === null ? [] : [`the earlier file ${missing} of the run is missing`]),
    ]
  }
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0)

function describeProblem(error: unknown): string {
  const cause = error instanceof CheckpointError ? error.cause : error
  if (errnoOf(cause) === 'ENOENT') return 'the record does not exist, or does not exist yet'
  return messageOf(error)
}

/** The types of network file systems in `statfs(2)`: NFS, SMB, CIFS, Ceph, Lustre, GPFS, BeeGFS. */
const networkTypes: ReadonlySet<number> = new Set([
  0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x00c36400, 0x0bd00bd0, 0x47504653, 0x19830326,
])

/** With less room than this, the session may be unable to write its record. */
const minFreeBytes = 2 ** 20

async function isDiskFull(path: string): Promise<boolean> {
  const found = await statfs(dirname(path)).catch(() => null)
  return found !== null && found.bavail * found.bsize < minFreeBytes
}

async function findInterval(path: string): Promise<number> {
  const found = await statfs(dirname(path)).catch(() => null)
  return readingIntervalMs(tryRead(() => found?.type))
}

/** `type` is the type of the file system; `undefined` if it is unknown. */
export const readingIntervalMs = (type: number | undefined): number =>
  type !== undefined && networkTypes.has(type >>> 0) ? networkIntervalMs : localIntervalMs
