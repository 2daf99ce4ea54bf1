/**
 * Every task that telemetry knows, and the totals over all tasks. Updated once per event, in
 * `emit`. The views share the counting itself.
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
  /** The number of tasks that have started, and their total time from TaskQueued to TaskStarted. */
  readonly queueTotals = { count: 0, sum: 0 }
  /** By uid: the record of an open task, or the archive row of an ended task. */
  readonly #known = new Map<string, TaskRow | number>()
  readonly #open = new IndexedSet<TaskRow>()
  readonly #archive = new TaskArchive()

  openRecords(): TaskRow[] {
    return this.#open.toArray()
  }

  /**
   * Iterates once over each currently known task, ended tasks first, even if tasks change during
   * the iteration. Records of ended tasks are copies.
   */
  *records(): Generator<TaskRow> {
    const open = this.#open.toArray()
    yield* this.endedRecords(0, this.endedCount)
    yield* open
  }

  /** The number of ended tasks. Their order never changes. */
  get endedCount(): number {
    return this.#archive.size
  }

  /** Copies of the ended tasks, in the order in which they ended. */
  *endedRecords(from: number, to: number): Generator<TaskRow> {
    for (let row = from; row < to; row++) yield this.#archive.read(row)
  }

  /** The durations that `totals` sums up. */
  durations(): number[] {
    return this.#archive.durations(hasDuration)
  }

  /** The task's record; a copy if the task has ended. */
  find(uid: string): TaskRow | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? this.#archive.read(known) : known
  }

  findOpen(uid: string): TaskRow | undefined {
    const known = this.#known.get(uid)
    return typeof known === 'number' ? undefined : known
  }

  /** Creates the record of a new task. */
  open(uid: string, event: BaseEvent): TaskRow {
    const record = new TaskRow(uid, newSpanId(), event.event_time)
    record.describe(event)
    this.#known.set(uid, record)
    this.#open.add(record)
    return record
  }

  /**
   * Applies a lifecycle event to an open task. A repeated event changes nothing. Returns whether
   * the event ended the task.
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

  /** Counts each task once, when both of its events are known. */
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
