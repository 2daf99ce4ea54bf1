/**
 * Ended tasks as rows of fixed size in a `SpillFile`. Equal names and attributes are stored once.
 */

import { emptyAttributes, type JsonObject } from '../../foundation/json-value.ts'
import type { DerivedIds } from '../../events/derived-ids.ts'
import { SpillFile, spillChunkBytes } from './spill-file.ts'
import { TaskRow } from './task-row.ts'

const rowBytes = 128
const rowsPerChunk = spillChunkBytes / rowBytes
/**
 * Byte offsets in a row. `shared` is an array of 32-bit indexes of shared values, and `numbers` is
 * an array of doubles.
 */
const offsets = { uidLength: 0, passed: 1, shared: 4, numbers: 40, uid: 104 } as const
const maxUidLength = rowBytes - offsets.uid
/** Takes the place of an index if the value is not shared. The value is then an extra field. */
const notShared = 0xffffffff

/**
 * The order of the fields in a row. `add` names each field in the code, because V8 reads a field by
 * a variable name several times slower.
 */
const nameFields = [
  'backend',
  'executable',
  'taskType',
  'errorType',
  'workflowId',
  'parentSpanId',
] as const
const attributeFields = ['queuedAttributes', 'startedAttributes'] as const
const numberFields = [
  'startTime',
  'queuedTime',
  'startedTime',
  'endTime',
  'durationSeconds',
] as const
/** The indexes in `numbers` of the span number, and of position and length of the extra fields. */
const spanNumberAt = numberFields.length
const extraAt = spanNumberAt + 1
const extraLengthAt = extraAt + 1

/** The fields of a task that few tasks have, or whose values are not shared. */
type ExtraFields = Record<string, unknown>
type AddExtra = (field: string, value: unknown) => void

export class TaskArchive {
  readonly #ids: DerivedIds
  readonly #rows = new SpillFile()
  readonly #extras = new SpillFile()
  readonly #names = new ValuePool<string | null>((name) => name)
  readonly #attributes = new ValuePool(attributesKey)
  readonly #row = Buffer.alloc(rowBytes)
  readonly #shared = new Uint32Array(this.#row.buffer, this.#row.byteOffset + offsets.shared, 8)
  readonly #numbers = new Float64Array(this.#row.buffer, this.#row.byteOffset + offsets.numbers, 8)
  #size = 0

  constructor(ids: DerivedIds) {
    this.#ids = ids
  }

  get size(): number {
    return this.#size
  }

  /** The size of the temporary files. */
  get spilledBytes(): number {
    return this.#rows.bytesInFile + this.#extras.bytesInFile
  }

  add(record: TaskRow): number {
    let extra: ExtraFields | null = null
    const addExtra: AddExtra = (field, value) => {
      extra ??= {}
      extra[field] = value
    }
    this.#writeUid(record.uid, addExtra)
    this.#row[offsets.passed] = record.passed
    this.#writeName(record.backend, 0, addExtra)
    this.#writeName(record.executable, 1, addExtra)
    this.#writeName(record.taskType, 2, addExtra)
    this.#writeName(record.errorType, 3, addExtra)
    this.#writeName(record.workflowId, 4, addExtra)
    this.#writeName(record.parentSpanId, 5, addExtra)
    this.#writeAttributes(record.queuedAttributes, 0, addExtra)
    this.#writeAttributes(record.startedAttributes, 1, addExtra)
    if (record.enriched !== null) addExtra('enriched', record.enriched)
    if (record.annotations !== null) addExtra('annotations', record.annotations)
    this.#writeNumbers(record, extra)
    this.#rows.append(this.#row)
    return this.#size++
  }

  read(row: number): TaskRow {
    return this.#parse(this.#rows.read(row * rowBytes, rowBytes), 0)
  }

  /** Yields the tasks in these rows, in order. */
  *readAll(from: number, to: number): Generator<TaskRow> {
    for (let row = from; row < to;) {
      // Copied, because the caller may add or read other rows meanwhile.
      const count = Math.min(to - row, rowsPerChunk)
      const bytes = Buffer.from(this.#rows.read(row * rowBytes, count * rowBytes))
      for (let at = 0; at < count; at++) yield this.#parse(bytes, at * rowBytes)
      row += count
    }
  }

  hasUid(row: number, uid: string): boolean {
    return this.read(row).uid === uid
  }

  durations(isWanted: (passed: number) => boolean): number[] {
    const found: number[] = []
    const durationAt = offsets.numbers + numberFields.indexOf('durationSeconds') * 8
    for (let row = 0; row < this.#size; row += rowsPerChunk) {
      const count = Math.min(this.#size - row, rowsPerChunk)
      const bytes = this.#rows.read(row * rowBytes, count * rowBytes)
      for (let at = 0; at < bytes.length; at += rowBytes) {
        if (isWanted(bytes[at + offsets.passed] ?? 0))
          found.push(bytes.readDoubleLE(at + durationAt))
      }
    }
    return found
  }

  #writeName(name: string | null, at: number, addExtra: AddExtra): void {
    const index = this.#names.indexOf(name, at)
    this.#shared[at] = index
    if (index === notShared) addExtra(nameFields[at] ?? '', name)
  }

  #writeAttributes(attributes: JsonObject, at: number, addExtra: AddExtra): void {
    const index = this.#attributes.indexOf(attributes, at)
    this.#shared[nameFields.length + at] = index
    if (index === notShared) addExtra(attributeFields[at] ?? '', attributes)
  }

  #writeUid(uid: string, addExtra: AddExtra): void {
    let length = uid.length
    for (let at = 0; at < uid.length && length <= maxUidLength; at++) {
      const code = uid.charCodeAt(at)
      if (code > 0x7f) length = notShared
      else this.#row[offsets.uid + at] = code
    }
    const isShort = length <= maxUidLength
    this.#row[offsets.uidLength] = isShort ? length : 0
    if (!isShort) addExtra('uid', uid)
  }

  #writeNumbers(record: TaskRow, extra: ExtraFields | null): void {
    const numbers = this.#numbers
    numbers[0] = record.startTime
    numbers[1] = record.queuedTime
    numbers[2] = record.startedTime
    numbers[3] = record.endTime
    numbers[4] = record.durationSeconds
    numbers[spanNumberAt] = record.spanNumber
    const bytes = extra === null ? null : Buffer.from(JSON.stringify(extra))
    numbers[extraAt] = bytes === null ? 0 : this.#extras.append(bytes)
    numbers[extraLengthAt] = bytes?.length ?? 0
  }

  #parse(bytes: Buffer, at: number): TaskRow {
    const number = (index: number): number => bytes.readDoubleLE(at + offsets.numbers + index * 8)
    const uidFrom = at + offsets.uid
    const uid = bytes.toString('latin1', uidFrom, uidFrom + (bytes[at + offsets.uidLength] ?? 0))
    const [startTime, queuedTime, startedTime, endTime, durationSeconds] = numberFields.map(
      (_, index) => number(index),
    )
    const fields: Record<string, unknown> = { queuedTime, startedTime, endTime, durationSeconds }
    fields['passed'] = bytes[at + offsets.passed]
    nameFields.forEach((field, index) => {
      fields[field] = this.#names.at(bytes.readUInt32LE(at + offsets.shared + index * 4))
    })
    attributeFields.forEach((field, index) => {
      const from = at + offsets.shared + (nameFields.length + index) * 4
      fields[field] = this.#attributes.at(bytes.readUInt32LE(from))
    })
    const length = number(extraLengthAt)
    const extra =
      length === 0
        ? null
        : (JSON.parse(this.#extras.read(number(extraAt), length).toString()) as ExtraFields)
    const ownUid = typeof extra?.['uid'] === 'string' ? extra['uid'] : uid
    const record = new TaskRow(ownUid, number(spanNumberAt), startTime ?? 0, this.#ids)
    return Object.assign(record, fields, extra)
  }
}

const attributesKey = (attributes: JsonObject): string =>
  attributes === emptyAttributes ? '' : JSON.stringify(attributes)

const maxShared = 4096

/** Stores each distinct value once, because tasks share few names and few workers. */
class ValuePool<T> {
  readonly #keyOf: (value: T) => string | null
  /** Indexes by key, and by the value itself, because computing a key may be slow. */
  readonly #byKey = new Map<string | null, number>()
  readonly #byValue = new Map<T, number>()
  readonly #values: T[] = []
  /** The latest index for each field of a row, because consecutive tasks share most values. */
  readonly #latestIndexes: number[] = []

  constructor(keyOf: (value: T) => string | null) {
    this.#keyOf = keyOf
  }

  /** Returns `notShared` if the pool is full. */
  indexOf(value: T, field: number): number {
    const latest = this.#latestIndexes[field] ?? -1
    if (latest !== -1 && this.#values[latest] === value) return latest
    const index = this.#byValue.get(value) ?? this.#findIndex(value)
    if (index !== notShared) this.#latestIndexes[field] = index
    return index
  }

  at(index: number): T | undefined {
    return this.#values[index]
  }

  #findIndex(value: T): number {
    const key = this.#keyOf(value)
    let index = this.#byKey.get(key)
    if (index === undefined) {
      if (this.#values.length === maxShared) return notShared
      index = this.#values.push(value) - 1
      this.#byKey.set(key, index)
    }
    if (this.#byValue.size === maxShared) this.#byValue.clear()
    this.#byValue.set(value, index)
    return index
  }
}
