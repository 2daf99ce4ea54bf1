/**
 * Tasks that have ended, in columns: numbers lie outside the garbage collector's reach, names are
 * shared.
 */

import { emptyAttributes, type JsonObject } from '../../foundation/json-value.ts'
import { type SpanStatus, TaskRecord } from './task-record.ts'

const blockRows = 4096
const statuses: readonly SpanStatus[] = ['completed', 'failed', 'canceled']

/** What only some tasks have. */
interface Rarities {
  readonly enriched: TaskRecord['enriched']
  readonly annotations: TaskRecord['annotations']
}

/** A fixed number of tasks. A million tasks grow block by block: nothing is ever copied. */
class Block {
  readonly uids: string[] = []
  readonly spanIds: string[] = []
  readonly startTime = new Float64Array(blockRows)
  readonly queuedTime = new Float64Array(blockRows)
  readonly startedTime = new Float64Array(blockRows)
  readonly endTime = new Float64Array(blockRows)
  readonly durationSeconds = new Float64Array(blockRows)
  readonly status = new Uint8Array(blockRows)
  readonly wasSubmitted = new Uint8Array(blockRows)
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
  readonly #rarities = new Map<number, Rarities>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Takes an ended task over; returns the row under which `read` gives it back. */
  add(record: TaskRecord): number {
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
    block.status[at] = record.status === null ? 0 : statuses.indexOf(record.status)
    block.wasSubmitted[at] = Number(record.wasSubmitted)
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
      this.#rarities.set(row, { enriched, annotations })
    return row
  }

  /** A fresh record of the task in this row. */
  read(row: number): TaskRecord {
    const block = this.#blockOf(row)
    const at = row % blockRows
    const record = new TaskRecord(
      block.uids[at] ?? '',
      block.spanIds[at] ?? '',
      num(block.startTime, at),
    )
    record.queuedTime = num(block.queuedTime, at)
    record.startedTime = num(block.startedTime, at)
    record.endTime = num(block.endTime, at)
    record.durationSeconds = num(block.durationSeconds, at)
    record.status = statuses[num(block.status, at)] ?? null
    record.wasSubmitted = num(block.wasSubmitted, at) === 1
    record.backend = this.#names.at(num(block.backend, at)) ?? ''
    record.executable = this.#names.at(num(block.executable, at)) ?? ''
    record.taskType = this.#names.at(num(block.taskType, at)) ?? ''
    record.errorType = this.#names.at(num(block.errorType, at))
    record.workflowId = this.#names.at(num(block.workflowId, at))
    record.parentSpanId = this.#names.at(num(block.parentSpanId, at))
    record.queuedAttributes = this.#queuedAttributes.at(num(block.queuedAttributes, at))
    record.startedAttributes = this.#startedAttributes.at(num(block.startedAttributes, at))
    Object.assign(record, this.#rarities.get(row))
    return record
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

/** Each distinct value once. Tasks share few names and few workers. */
class Pool<T> {
  readonly #keyOf: (value: T) => string | null
  readonly #indexes = new Map<string | null, number>()
  readonly #values: T[] = []
  #latest = -1

  constructor(keyOf: (value: T) => string | null) {
    this.#keyOf = keyOf
  }

  indexOf(value: T): number {
    // Tasks that ended one after the other share most values, and a key may be costly.
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
