/**
 * Every task that telemetry knows, and the totals over them. Updated once per event, in `emit`; the
 * counting itself is shared with the views.
 */

import type { BaseEvent } from '../../events/event.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { IndexedSet } from '../../runtime/indexed-set.ts'
import { countStage, createTotals, hasDuration, isQueued, stages } from '../../views/lifecycle.ts'
import { type TaskTotals, validSeconds } from '../../views/lifecycle.ts'
import { TaskArchive } from './task-archive.ts'
import { extraAttributes, TaskRow } from './task-row.ts'

export class TaskTable {
  readonly totals: TaskTotals = createTotals()
  /** The time that tasks waited from TaskQueued to TaskStarted. */
  readonly queueTotals = { count: 0, sum: 0 }
  /** By uid: the record of an open task, or the archive row of an ended one. */
  readonly #known = new Map<string, TaskRow | number>()
  readonly #open = new IndexedSet<TaskRow>()
  readonly #archive = new TaskArchive()

  openRecords(): TaskRow[] {
    return this.#open.toArray()
  }

  /**
   * Each currently known task once, even if tasks change during the iteration; ended tasks first.
   * Records of ended tasks are copies.
   */
  *records(): Generator<TaskRow> {
    const open = this.#open.toArray()
    yield* this.endedRecords(0, this.endedCount)
    yield* open
  }

  /** How many tasks have ended; their order never changes. */
  get endedCount(): number {
    return this.#archive.size
  }

  /** Copies of the tasks that have ended, in the order of their end. */
  *endedRecords(from: number, to: number): Generator<TaskRow> {
    for (let row = from; row < to; row++) yield this.#archive.read(row)
  }

  /** The durations that `totals` sums up. */
  durations(): number[] {
    return this.#archive.durations(hasDuration)
  }

  /** The task's record; a copy if it has ended. */
  find(uid: string): TaskRow | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? this.#archive.read(known) : known
  }

  findOpen(uid: string): TaskRow | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? undefined : known
  }

  /** Creates the record of a task that was not known before. */
  open(uid: string, event: BaseEvent): TaskRow {
    const record = new TaskRow(uid, newSpanId(), event.event_time)
    record.describe(event)
    this.#known.set(uid, record)
    this.#open.add(record)
    return record
  }

  /**
   * Applies a lifecycle event to an open task; a repeated one changes nothing. Returns whether it
   * ended the task.
   */
  apply(record: TaskRow, event: BaseEvent, stage: number): boolean {
    record.describe(event)
    const isEnd = stage >= stages.completed
    const seconds = isEnd
      ? validSeconds((event as { duration_seconds?: unknown }).duration_seconds)
      : 0
    const passed = countStage(this.totals, record.passed, stage, seconds)
    if (passed === record.passed) return false
    record.passed = passed
    if (isEnd) this.#end(record, event, seconds)
    else if (stage === stages.queued) {
      record.queuedTime = event.event_time
      record.queuedAttributes = extraAttributes(event.attributes)
    } else if (stage === stages.started) {
      record.startedTime = event.event_time
      record.startedAttributes = extraAttributes(event.attributes)
    }
    if (stage === stages.queued || stage === stages.started) this.#addWait(record)
    return isEnd
  }

  /** Ends the span of a task that is still open when telemetry stops. */
  abandon(record: TaskRow, time: number): void {
    record.endTime = Math.max(time, record.startTime)
    if (record.wasRunning) this.totals.running--
    if (isQueued(record.passed)) this.totals.queued--
  }

  /** Counts each task once, when the second of its two events is known. */
  #addWait({ queueSeconds }: TaskRow): void {
    if (queueSeconds === null) return
    this.queueTotals.count++
    this.queueTotals.sum += queueSeconds
  }

  #end(record: TaskRow, event: BaseEvent, seconds: number): void {
    if (event.event_type === 'TaskFailed') {
      record.errorType = (event as BaseEvent & { error_type: string }).error_type
    }
    record.endTime = Math.max(event.event_time, record.startTime)
    record.durationSeconds = seconds
    this.#open.delete(record)
    this.#known.set(record.uid, this.#archive.add(record))
  }
}
