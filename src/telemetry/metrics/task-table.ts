/**
 * Every task that telemetry knows, and the totals over them. Updated in `emit`, once per event: the
 * counting itself is that of the views.
 */

import type { BaseEvent } from '../../events/event.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { IndexedSet } from '../../runtime/indexed-set.ts'
import { countStage, createTotals, hasDuration, stages } from '../../views/lifecycle.ts'
import { type TaskTotals, validSeconds } from '../../views/lifecycle.ts'
import { TaskArchive } from './task-archive.ts'
import { beyondTask, TaskRecord } from './task-record.ts'

export class TaskTable {
  readonly totals: TaskTotals = createTotals()
  /** Open tasks, and the archive's rows of those that have ended. */
  readonly #known = new Map<string, TaskRecord | number>()
  readonly #open = new IndexedSet<TaskRecord>()
  readonly #archive = new TaskArchive()

  openRecords(): TaskRecord[] {
    return this.#open.toArray()
  }

  /**
   * Each task that is known now, once, even when tasks change during the iteration; those that have
   * ended first. Records of ended tasks are copies.
   */
  *records(): Generator<TaskRecord> {
    const open = this.#open.toArray()
    const { size } = this.#archive
    for (let row = 0; row < size; row++) yield this.#archive.read(row)
    yield* open
  }

  /** The durations that `totals` sums up. */
  durations(): number[] {
    return this.#archive.durations(hasDuration)
  }

  /** The task's record; a copy if it has ended. */
  find(uid: string): TaskRecord | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? this.#archive.read(known) : known
  }

  findOpen(uid: string): TaskRecord | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? undefined : known
  }

  /** A record for a task that was not known before. */
  open(uid: string, event: BaseEvent): TaskRecord {
    const record = new TaskRecord(uid, newSpanId(), event.event_time)
    this.#known.set(uid, record)
    this.#open.add(record)
    return record
  }

  /**
   * Applies a lifecycle event to an open task; a repeated one changes nothing. True when it ended
   * the task.
   */
  apply(record: TaskRecord, event: BaseEvent, stage: number): boolean {
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
      record.queuedAttributes = beyondTask(event.attributes)
    } else if (stage === stages.started) {
      record.startedTime = event.event_time
      record.startedAttributes = beyondTask(event.attributes)
    }
    return isEnd
  }

  /** Ends the span of a task that is still open when telemetry stops. */
  abandon(record: TaskRecord, time: number): void {
    record.endTime = Math.max(time, record.startTime)
    if (record.wasRunning) this.totals.running--
  }

  #end(record: TaskRecord, event: BaseEvent, seconds: number): void {
    if (event.event_type === 'TaskFailed') {
      record.errorType = (event as BaseEvent & { error_type: string }).error_type
    }
    record.endTime = Math.max(event.event_time, record.startTime)
    record.durationSeconds = seconds
    this.#open.delete(record)
    this.#known.set(record.uid, this.#archive.add(record))
  }
}
