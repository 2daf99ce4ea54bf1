/**
 * Every task that telemetry has heard of, and the totals over them. Updated at the door, once per
 * event.
 */

import type { BaseEvent } from '../../events/event.ts'
import { newSpanId } from '../../foundation/ids.ts'
import { IndexedSet } from '../../runtime/indexed-set.ts'
import { TaskArchive } from './task-archive.ts'
import { beyondTask, type SpanStatus, TaskRecord } from './task-record.ts'

/** Sums over all tasks; they agree with the records at any time. */
export interface TaskTotals {
  submitted: number
  started: number
  completed: number
  failed: number
  canceled: number
  running: number
  /** Of tasks that were RUNNING and reached DONE or FAILED. */
  durationCount: number
  durationSum: number
}

export class TaskTable {
  readonly totals: TaskTotals = {
    submitted: 0,
    started: 0,
    completed: 0,
    failed: 0,
    canceled: 0,
    running: 0,
    durationCount: 0,
    durationSum: 0,
  }
  /** Open tasks, and the archive's rows of those that have ended. */
  readonly #known = new Map<string, TaskRecord | number>()
  readonly #open = new IndexedSet<TaskRecord>()
  readonly #archive = new TaskArchive()

  openRecords(): TaskRecord[] {
    return this.#open.toArray()
  }

  /**
   * Each task that is known now, once, also while tasks go on during the iteration; those that have
   * ended first. Ended ones are copies.
   */
  *records(): Generator<TaskRecord> {
    const open = this.#open.toArray()
    const { size } = this.#archive
    for (let row = 0; row < size; row++) yield this.#archive.read(row)
    yield* open
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

  /** A record for a task that was not heard of before. */
  open(uid: string, event: BaseEvent): TaskRecord {
    const record = new TaskRecord(uid, newSpanId(), event.event_time)
    this.#known.set(uid, record)
    this.#open.add(record)
    return record
  }

  /**
   * Takes a lifecycle event of an open task in; repeated ones change nothing. True when it ended
   * the task.
   */
  apply(record: TaskRecord, event: BaseEvent): boolean {
    const { totals } = this
    record.describe(event)
    switch (event.event_type) {
      case 'TaskSubmitted':
        if (!record.wasSubmitted) totals.submitted++
        record.wasSubmitted = true
        return false
      case 'TaskQueued':
        if (record.wasQueued) return false
        record.queuedTime = event.event_time
        record.queuedAttributes = beyondTask(event.attributes)
        return false
      case 'TaskStarted':
        if (record.wasRunning) return false
        record.startedTime = event.event_time
        record.startedAttributes = beyondTask(event.attributes)
        totals.started++
        totals.running++
        return false
      case 'TaskCompleted':
        totals.completed++
        this.#end(record, event, 'completed')
        return true
      case 'TaskFailed':
        totals.failed++
        record.errorType = (event as BaseEvent & { error_type: string }).error_type
        this.#end(record, event, 'failed')
        return true
      case 'TaskCanceled':
        totals.canceled++
        this.#end(record, event, 'canceled')
        return true
      default:
        return false
    }
  }

  /** Ends the span of a task that is still open; nobody will tell how the task ended. */
  abandon(record: TaskRecord, time: number): void {
    record.endTime = Math.max(time, record.startTime)
    if (record.wasRunning) this.totals.running--
  }

  #end(record: TaskRecord, event: BaseEvent, status: SpanStatus): void {
    const { duration_seconds: seconds } = event as BaseEvent & { duration_seconds: number }
    record.status = status
    record.endTime = Math.max(event.event_time, record.startTime)
    // One wrong number must not spoil the sum for good.
    record.durationSeconds = seconds > 0 && seconds < Infinity ? seconds : 0
    this.#open.delete(record)
    this.#known.set(record.uid, this.#archive.add(record))
    if (!record.wasRunning) return
    this.totals.running--
    if (status === 'canceled') return
    this.totals.durationCount++
    this.totals.durationSum += record.durationSeconds
  }
}
