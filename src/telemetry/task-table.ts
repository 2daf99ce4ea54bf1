/**
 * Every task that telemetry has heard of, and the totals over them. Updated at the door, once per
 * event.
 */

import type { BaseEvent } from '../events/event.ts'
import { emptyAttributes, type JsonObject } from '../events/json-value.ts'
import { newSpanId } from '../foundation/ids.ts'
import { TaskArchive } from './task-archive.ts'
import { type SpanStatus, TaskRecord } from './task-record.ts'

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

const onEveryTaskEvent = 2

/** Most events say no more than `executable` and `task_type`: those keep nothing. */
function beyondTask(attributes: JsonObject): JsonObject {
  if (Object.keys(attributes).length <= onEveryTaskEvent) return emptyAttributes
  const { executable: _executable, task_type: _taskType, ...rest } = attributes
  return rest
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
  readonly #open = new Map<string, TaskRecord>()
  readonly #ended = new Map<string, number>()
  readonly #archive = new TaskArchive()

  openRecords(): IterableIterator<TaskRecord> {
    return this.#open.values()
  }

  /** Every task; those that have ended first. Ended ones are copies. */
  *records(): Generator<TaskRecord> {
    for (let row = 0; row < this.#archive.size; row++) yield this.#archive.read(row)
    yield* this.#open.values()
  }

  findOpen(uid: string): TaskRecord | undefined {
    return this.#open.get(uid)
  }

  findEnded(uid: string): TaskRecord | undefined {
    const row = this.#ended.get(uid)
    return row === undefined ? undefined : this.#archive.read(row)
  }

  /** A record for a task that was not heard of before. */
  open(uid: string, event: BaseEvent): TaskRecord {
    const record = new TaskRecord(uid, newSpanId(), event.event_time)
    this.#open.set(uid, record)
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
        record.queuedTime ||= event.event_time
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

  #end(record: TaskRecord, event: BaseEvent, status: SpanStatus): void {
    record.status = status
    record.endTime = Math.max(event.event_time, record.startTime)
    record.durationSeconds = (event as BaseEvent & { duration_seconds: number }).duration_seconds
    this.#open.delete(record.uid)
    this.#ended.set(record.uid, this.#archive.add(record))
    if (!record.wasRunning) return
    this.totals.running--
    if (status === 'canceled') return
    this.totals.durationCount++
    this.totals.durationSum += record.durationSeconds
  }
}
