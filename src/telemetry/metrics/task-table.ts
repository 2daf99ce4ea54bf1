/**
 * Every task that telemetry knows, and the totals over all tasks. Updated once per lifecycle event.
 * The views use the same code for counting.
 */

import type { TaskChange } from '../../events/sink.ts'
import { DerivedIds, newIdKey } from '../../events/derived-ids.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { IndexedSet } from '../../runtime/indexed-set.ts'
import { countStage, createTotals, hasDuration, isQueued, stages } from '../../views/lifecycle.ts'
import { type TaskTotals, validSeconds } from '../../views/lifecycle.ts'
import { TaskArchive } from './task-archive.ts'
import { extraAttributes, TaskRow } from './task-row.ts'
import { UidIndex } from './uid-index.ts'

/** The fields that the table reads from a `TaskChange` or from an event object. */
export type TaskEventFields = Pick<
  TaskChange,
  'event_time' | 'backend' | 'task_id' | 'attributes'
> & {
  readonly event_type: string
  readonly own?: JsonObject | null
  readonly duration_seconds?: unknown
  readonly error_type?: unknown
}

export class TaskTable {
  readonly totals: TaskTotals = createTotals()
  readonly queueTotals = { count: 0, sum: 0 }
  /** Derives the ids of events and of task spans from their numbers. */
  readonly ids = new DerivedIds(newIdKey())
  /** Maps a uid to `row * 2` for an ended task, and to `slot * 2 + 1` for an open task. */
  readonly #indexByUid = new UidIndex((value, uid) => this.#hasUid(value, uid))
  readonly #slots: (TaskRow | undefined)[] = []
  readonly #freeSlots: number[] = []
  readonly #openTasks = new IndexedSet<TaskRow>()
  readonly #archive = new TaskArchive(this.ids)
  /** The open task of the latest event, as events of one task often follow each other. */
  #latestTask: TaskRow | undefined
  #spanNumber = 0

  openRecords(): TaskRow[] {
    return this.#openTasks.toArray()
  }

  /**
   * Yields each currently known task once, ended tasks first, even if tasks change during the
   * iteration. Records of ended tasks are copies.
   */
  *records(): Generator<TaskRow> {
    const open = this.#openTasks.toArray()
    yield* this.endedRecords(0, this.endedCount)
    yield* open
  }

  /** The number of ended tasks. Their order never changes. */
  get endedCount(): number {
    return this.#archive.size
  }

  /** The size of the temporary files that hold ended tasks. */
  get spilledBytes(): number {
    return this.#archive.spilledBytes
  }

  /** Copies of the ended tasks, in the order in which they ended. */
  endedRecords(from: number, to: number): Generator<TaskRow> {
    return this.#archive.readAll(from, to)
  }

  durations(): number[] {
    return this.#archive.durations(hasDuration)
  }

  /** The task's record; a copy if the task has ended. */
  find(uid: string): TaskRow | undefined {
    if (this.#latestTask?.uid === uid) return this.#latestTask
    const known = this.#indexByUid.get(uid)
    if (known === -1) return undefined
    return isOpen(known) ? this.#slots[known >>> 1] : this.#archive.read(known >>> 1)
  }

  findOpen(uid: string): TaskRow | undefined {
    if (this.#latestTask?.uid === uid) return this.#latestTask
    const known = this.#indexByUid.get(uid)
    return known !== -1 && isOpen(known) ? this.#slots[known >>> 1] : undefined
  }

  open(uid: string, event: TaskEventFields): TaskRow {
    do this.#spanNumber++
    while (!this.ids.isSpanNumber(this.#spanNumber))
    const record = new TaskRow(uid, this.#spanNumber, event.event_time, this.ids)
    record.describe(event)
    record.slot = this.#freeSlots.pop() ?? this.#slots.length
    this.#slots[record.slot] = record
    this.#indexByUid.set(uid, record.slot * 2 + 1)
    this.#openTasks.add(record)
    return record
  }

  /**
   * Applies a lifecycle event to an open task. A repeated event changes nothing. Returns whether
   * the event ended the task.
   */
  apply(record: TaskRow, event: TaskEventFields, stage: number): boolean {
    this.#latestTask = record
    record.describe(event)
    const isEnd = stage >= stages.completed
    const seconds = isEnd ? validSeconds(event.duration_seconds) : 0
    const passed = countStage(this.totals, record.passed, stage, seconds)
    if (passed === record.passed) return false
    record.passed = passed
    if (isEnd) this.#endTask(record, event, seconds)
    else if (stage === stages.queued) {
      record.queuedTime = event.event_time
      record.queuedAttributes = extraAttributes(event)
    } else if (stage === stages.started) {
      record.startedTime = event.event_time
      record.startedAttributes = extraAttributes(event)
    }
    if (stage === stages.queued || stage === stages.started) this.#addQueueTime(record)
    return isEnd
  }

  abandon(record: TaskRow, time: number): void {
    record.endTime = Math.max(time, record.startTime)
    if (record.wasRunning) this.totals.running--
    if (isQueued(record.passed)) this.totals.queued--
  }

  #addQueueTime({ queueSeconds }: TaskRow): void {
    if (queueSeconds === null) return
    this.queueTotals.count++
    this.queueTotals.sum += queueSeconds
  }

  #endTask(record: TaskRow, event: TaskEventFields, seconds: number): void {
    if (event.event_type === 'TaskFailed') record.errorType = String(event.error_type)
    record.endTime = Math.max(event.event_time, record.startTime)
    record.durationSeconds = seconds
    this.#openTasks.delete(record)
    // Must precede the next line: the index compares the uid of the record in the slot.
    this.#indexByUid.set(record.uid, this.#archive.add(record) * 2)
    this.#slots[record.slot] = undefined
    this.#freeSlots.push(record.slot)
    this.#latestTask = undefined
  }

  #hasUid(known: number, uid: string): boolean {
    if (!isOpen(known)) return this.#archive.hasUid(known >>> 1, uid)
    return this.#slots[known >>> 1]?.uid === uid
  }
}

const isOpen = (known: number): boolean => (known & 1) === 1
