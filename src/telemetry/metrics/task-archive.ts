/**
 * Ended tasks in columns: numbers are stored outside the garbage-collected heap, names are shared.
 */

import { emptyAttributes, type JsonObject } from '../../foundation/json-value.ts'
import { TaskRow } from './task-row.ts'

const blockRows = 4096

/** Fields that only few tasks have. */
interface RareFields {
  readonly enriched: TaskRow['enriched']
  readonly annotations: TaskRow['annotations']
}

/** The columns for a fixed number of tasks, so that the archive grows without copying. */
class Block {
  readonly uids: string[] = []
  readonly spanIds: string[] = []
  readonly startTime = new Float64Array(blockRows)
  readonly queuedTime = new Float64Array(blockRows)
  readonly startedTime = new Float64Array(blockRows)
  readonly endTime = new Float64Array(blockRows)
  readonly durationSeconds = new Float64Array(blockRows)
  readonly passed = new Uint8Array(blockRows)
  readonly backend = new Uint32Array(blockRows)
  readonly executable = new Uint32Array(blockRows)
  readonly taskType = new Uint32Array(blockRows)
  readonly errorType = new Uint32Array(blockRows)
  readonly workflowId = new Uint32Array(blockRows)
  readonly parentSpanId = new Uint32Array(blockRows)
  readonly queuedAttributes = new Uint32Array(blockRows)
  readonly startedAttributes = new Uint32Array(blockRows)
}

export class TaskArchive {
  readonly #blocks: Block[] = []
  readonly #names = new Pool<string | null>((name) => name)
  readonly #queuedAttributes = new Pool(keyOfAttributes)
  readonly #startedAttributes = new Pool(keyOfAttributes)
  readonly #rareFields = new Map<number, RareFields>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Stores an ended task. Returns the row number for `read`. */
  add(record: TaskRow): number {
    const row = this.#size++
    const at = row % blockRows
    if (at === 0) this.#blocks.push(new Block())
    const block = this.#blockOf(row)
    block.uids.push(record.uid)
    block.spanIds.push(record.spanId)
    block.startTime[at] = record.startTime
    block.queuedTime[at] = record.queuedTime
    block.startedTime[at] = record.startedTime
    block.endTime[at] = record.endTime
    block.durationSeconds[at] = record.durationSeconds
    block.passed[at] = record.passed
    block.backend[at] = this.#names.indexOf(record.backend)
    block.executable[at] = this.#names.indexOf(record.executable)
    block.taskType[at] = this.#names.indexOf(record.taskType)
    block.errorType[at] = this.#names.indexOf(record.errorType)
    block.workflowId[at] = this.#names.indexOf(record.workflowId)
    block.parentSpanId[at] = this.#names.indexOf(record.parentSpanId)
    block.queuedAttributes[at] = this.#queuedAttributes.indexOf(record.queuedAttributes)
    block.startedAttributes[at] = this.#startedAttributes.indexOf(record.startedAttributes)
    const { enriched, annotations } = record
    if (enriched !== null || annotations !== null)
      this.#rareFields.set(row, { enriched, annotations })
    return row
  }

  /** A new record with the data of the task in this row. */
  read(row: number): TaskRow {
    const block = this.#blockOf(row)
    const at = row % blockRows
    const record = new TaskRow(
      block.uids[at] ?? '',
      block.spanIds[at] ?? '',
      num(block.startTime, at),
    )
    record.queuedTime = num(block.queuedTime, at)
    record.startedTime = num(block.startedTime, at)
    record.endTime = num(block.endTime, at)
    record.durationSeconds = num(block.durationSeconds, at)
    record.passed = num(block.passed, at)
    record.backend = this.#names.at(num(block.backend, at)) ?? ''
    record.executable = this.#names.at(num(block.executable, at)) ?? ''
    record.taskType = this.#names.at(num(block.taskType, at)) ?? ''
    record.errorType = this.#names.at(num(block.errorType, at))
    record.workflowId = this.#names.at(num(block.workflowId, at))
    record.parentSpanId = this.#names.at(num(block.parentSpanId, at))
    record.queuedAttributes = this.#queuedAttributes.at(num(block.queuedAttributes, at))
    record.startedAttributes = this.#startedAttributes.at(num(block.startedAttributes, at))
    Object.assign(record, this.#rareFields.get(row))
    return record
  }

  /** The durations of the tasks whose passed stages satisfy `isWanted`. */
  durations(isWanted: (passed: number) => boolean): number[] {
    const found: number[] = []
    for (let row = 0; row < this.#size; row++) {
      const block = this.#blockOf(row)
      const at = row % blockRows
      if (isWanted(num(block.passed, at))) found.push(num(block.durationSeconds, at))
    }
    return found
  }

  #blockOf(row: number): Block {
    const block = this.#blocks[Math.floor(row / blockRows)]
    if (block === undefined) throw new RangeError(`no task in row ${row}`)
    return block
  }
}

const keyOfAttributes = (attributes: JsonObject): string =>
  attributes === emptyAttributes ? '' : JSON.stringify(attributes)

const num = (column: Float64Array | Uint8Array | Uint32Array, at: number): number => column[at] ?? 0

/** Stores each distinct value once, because tasks share few names and few workers. */
class Pool<T> {
  readonly #keyOf: (value: T) => string | null
  readonly #indexes = new Map<string | null, number>()
  readonly #values: T[] = []
  #latest = -1

  constructor(keyOf: (value: T) => string | null) {
    this.#keyOf = keyOf
  }

  indexOf(value: T): number {
    // Consecutive tasks share most values, and computing a key may be slow.
    if (this.#latest !== -1 && this.#values[this.#latest] === value) return this.#latest
    const key = this.#keyOf(value)
    let index = this.#indexes.get(key)
    if (index === undefined) {
      index = this.#values.push(value) - 1
      this.#indexes.set(key, index)
    }
    this.#latest = index
    return index
  }

  at(index: number): T {
    return this.#values[index] as T
  }
}
