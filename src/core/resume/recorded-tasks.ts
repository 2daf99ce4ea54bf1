/**
 * The tasks of an earlier run, over all files of its chain. A uid that the caller chose identifies
 * the task. A task with a generated uid is identified by `definition_hash` and its number among
 * equal tasks. A later file does not create tasks in the order of the program, so it names the task
 * that it continues as the origin.
 */

import type { ValueLocation } from '../../checkpoint/results-reader.ts'
import { type Column, createColumn, createTextIndex, findText } from '../../views/columns.ts'
import { indexOf, setValue, textAt, valueAt } from '../../views/columns.ts'
import { codeDigestOf, parseUidNumber, inputDigestOf } from '../../foundation/ids.ts'
import { isMarked, removeMark } from '../../foundation/ids.ts'
import { EqualTasks } from './equal-tasks.ts'
import type { TaskInputs, TaskOrigin } from '../entry.ts'

/** The name of a task, and its hash; `null` if the definition cannot be compared. */
export interface TaskSignature {
  readonly name: string
  readonly hash: string | null
}

export interface RecordedValue extends ValueLocation {
  /** The index of the file in the chain, from 0. */
  readonly file: number
}

/** How a task of the record ended; `open` if it has not ended. */
export type RecordedState = 'open' | 'done' | 'failed' | 'canceled'

/** A state is stored as its index in this array; 0 means that the row has no task. */
const states = [null, 'open', 'done', 'failed', 'canceled'] as const

/** The contents of a TaskCreated event. */
export interface CreatedTask extends TaskSignature {
  readonly origin: TaskOrigin | null
  /** The uids of the dependencies in the same file. */
  readonly dependencies: readonly string[]
}

/**
 * How a task of the new run relates to its row. `same`: the same task with the same input values.
 * `outdated`: the same task, but with newer input values. `changed`: a task that continues the row,
 * but may differ. Only `same` tasks use recorded results.
 */
const matchKinds = { same: 1, outdated: 2, changed: 3 } as const

export const noInputs: TaskInputs = Object.freeze({ dependencies: [], enclosing: [] })

/**
 * All recorded tasks, in rows numbered from 1; 0 means no task. A task takes about 150 bytes plus
 * its uid and hash.
 */
export class RecordedTasks {
  /** Uids are numbered. For each uid, the columns hold the row and the file of its last task. */
  readonly #uids = createTextIndex()
  readonly #rowOfUid = createColumn('u32')
  readonly #fileOfUid = createColumn('u32')
  readonly #names = createTextIndex()
  /** Not a text index, because hashes are long and their strings exist anyway. */
  readonly #hashes = new Map<string, number>()
  readonly #hashTexts: string[] = []
  /** Code digests that several functions of one file share. */
  readonly #ambiguousCodes = new Set<string>()
  readonly #equals = new EqualTasks()
  /** Unfinished tasks by name and input, in reverse order for `pop`; filled on first use. */
  #unfinished: Map<string, number[]> | null = null
  /** Rows by origin. An origin in the first file is found by its uid, any other by file and uid. */
  readonly #byFirstUid = createColumn('u32')
  readonly #byOrigin = new Map<string, number>()
  /**
   * For tasks whose definition changed: the file and uid where the new definition first appeared.
   */
  readonly #definitionOrigins = new Map<number, string>()
  /** For a task with a generated uid: the file and uid of its first creation; otherwise file 0. */
  readonly #originUid = createColumn('u32')
  readonly #originFile = createColumn('u32')
  readonly #uid = createColumn('u32')
  readonly #name = createColumn('u32')
  readonly #hash = createColumn('u32')
  readonly #state = createColumn('u8')
  readonly #attempts = createColumn('u32')
  /** The latest file that contains the task. */
  readonly #createdFile = createColumn('u32')
  readonly #attemptFile = createColumn('u32')
  readonly #doneFile = createColumn('u32')
  /** The hash with which the value was computed, and the hash of the task when it was last DONE. */
  readonly #valueHash = createColumn('u32')
  readonly #doneHash = createColumn('u32')
  /** The number of the file that has the value, from 1; 0 if the value was not stored. */
  readonly #valueFile = createColumn('u32')
  readonly #valueOffset = createColumn('f64')
  readonly #valueBytes = createColumn('u32')
  readonly #valueCrc = createColumn('u32')
  readonly #matchKind = createColumn('u8')
  #size = 0
  #file = 0

  get size(): number {
    return this.#size
  }

  /** The number of the current file, from 1. */
  get file(): number {
    return this.#file
  }

  /** Starts the next file, in which a generated uid may belong to another task. */
  beginFile(): void {
    this.#file++
  }

  /**
   * Adds a created task. Must be called in the order of the file. Returns `false` if the file
   * creates a task or continues an origin twice, as only a damaged file does.
   */
  create(uid: string, { name, hash: given, origin, dependencies }: CreatedTask): boolean {
    const hash = given !== null && isMarked(given) ? this.#normalizeHash(uid, given) : given
    const number = indexOf(this.#uids, uid)
    const hashAt = hash === null ? 0 : this.#indexOfHash(hash) + 1
    const rows =
      dependencies.length === 0 ? noRows : dependencies.map((one) => this.#rowInFile(one))
    const isNamed = parseUidNumber(uid) === null
    const row = isNamed
      ? valueAt(this.#rowOfUid, number) || ++this.#size
      : this.#rowOfGenerated(number, origin, hashAt, rows)
    const isRepeated =
      valueAt(this.#fileOfUid, number) === this.#file ||
      valueAt(this.#createdFile, row) === this.#file
    setValue(this.#createdFile, row, this.#file)
    setValue(this.#name, row, indexOf(this.#names, name))
    this.#numberAttempts(number, row, hashAt)
    setValue(this.#rowOfUid, number, row)
    setValue(this.#fileOfUid, number, this.#file)
    setValue(this.#uid, row, number)
    setValue(this.#hash, row, hashAt)
    if (this.stateOf(row) !== 'done') setValue(this.#state, row, states.indexOf('open'))
    return !isRepeated
  }

  /**
   * Adds an attempt that may have begun. A task that an earlier file completed is unfinished again.
   */
  addAttempt(uid: string, attempt: number): void {
    const row = this.#rowInFile(uid)
    if (row === 0) return
    if (attempt > valueAt(this.#attempts, row)) this.#setAttempts(row, attempt)
    if (this.stateOf(row) === 'done' && valueAt(this.#doneFile, row) !== this.#file) {
      setValue(this.#state, row, states.indexOf('open'))
    }
  }

  /**
   * Sets how a task ended. A done task stays done until it runs again, like `staysEnded` of the
   * views. A newly computed value replaces an earlier one. Returns the row; 0 for an unknown uid.
   */
  end(uid: string, state: Exclude<RecordedState, 'open'>, isReused: boolean): number {
    const row = this.#rowInFile(uid)
    if (row === 0) return 0
    if (state === 'done') {
      const hash = valueAt(this.#hash, row)
      // A value reused from the record keeps its hash. A value from a cache gets the current hash.
      if (!isReused || this.stateOf(row) !== 'done') setValue(this.#valueHash, row, hash)
      setValue(this.#doneFile, row, this.#file)
      setValue(this.#doneHash, row, hash)
      if (!isReused) setValue(this.#valueFile, row, 0)
    } else if (state === 'canceled' && this.stateOf(row) === 'done') return row
    setValue(this.#state, row, states.indexOf(state))
    return row
  }

  storeLocation(uid: string, { offset, bytes, crc }: ValueLocation): void {
    const row = this.#rowInFile(uid)
    if (row === 0 || valueAt(this.#doneFile, row) !== this.#file) return
    setValue(this.#valueFile, row, this.#file)
    setValue(this.#valueOffset, row, offset)
    setValue(this.#valueBytes, row, bytes)
    setValue(this.#valueCrc, row, crc)
  }

  /** The row of a task that the caller named; 0 if there is none, or for a generated uid. */
  findNamed(uid: string): number {
    return parseUidNumber(uid) === null ? this.findUid(uid) : 0
  }

  /** The row of the last task that had this uid, whether or not it is the same task. */
  findUid(uid: string): number {
    const number = findText(this.#uids, uid)
    return number === -1 ? 0 : valueAt(this.#rowOfUid, number)
  }

  /**
   * Finds the row of a task of the new run and marks the row as used. Returns 0 if there is none.
   */
  match(uid: string, hash: string | null, inputs: TaskInputs): number {
    const named = this.findNamed(uid)
    const row = parseUidNumber(uid) === null ? named : this.#matchEqual(hash, inputs)
    // A task with a chosen uid remains the same task even if its input values are newer now.
    const isOutdated = named > 0 && (inputs.enclosing === null || this.#isOutdated(named, inputs))
    if (row > 0) setValue(this.#matchKind, row, isOutdated ? matchKinds.outdated : matchKinds.same)
    return row
  }

  /**
   * Finds the unfinished task that a task of the new run continues if its definition has changed or
   * cannot be compared. Matches by name, input and order. Returns 0 if there is none. Calls
   * `isUnfinished` once per row.
   */
  matchUnfinished(
    uid: string,
    call: TaskSignature & TaskInputs,
    isUnfinished: (row: number) => boolean,
  ): number {
    const { name, hash, dependencies } = call
    if (parseUidNumber(uid) === null) return 0
    this.#unfinished ??= this.#listUnfinished(isUnfinished)
    const rows = this.#unfinished.get(unfinishedKey(name, hash)) ?? noRows
    for (let row = rows.pop(); row !== undefined; row = rows.pop()) {
      if (this.isMatched(row)) continue
      const isSameCode = hash !== null && this.hashOf(row) === hash
      const isEqual = isSameCode && this.#equals.has(row, valueAt(this.#hash, row), dependencies)
      // Tasks with the same hash but different recorded dependencies are different tasks.
      if (isSameCode && !isEqual && !dependencies.includes(0)) continue
      const isOutdated = isEqual && !this.#isAmbiguous(hash)
      setValue(this.#matchKind, row, isOutdated ? matchKinds.outdated : matchKinds.changed)
      return row
    }
    return 0
  }

  #listUnfinished(isUnfinished: (row: number) => boolean): Map<string, number[]> {
    const left = new Map<string, number[]>()
    for (let row = this.#size; row > 0; row--) {
      if (!isUnfinished(row) || valueAt(this.#originFile, row) === 0) continue
      const key = unfinishedKey(this.nameOf(row), this.hashOf(row))
      const rows = left.get(key)
      if (rows === undefined) left.set(key, [row])
      else rows.push(row)
    }
    return left
  }

  /** For a generated uid: the task's first uid, and how many files ago; `null` for a chosen uid. */
  originOf(row: number): TaskOrigin | null {
    const file = valueAt(this.#originFile, row)
    if (file === 0) return null
    return { uid: textAt(this.#uids, valueAt(this.#originUid, row)), filesBack: this.#file - file }
  }

  /** The file and uid where a task first had its definition; `null` for row 0 or a chosen uid. */
  definitionOrigin(row: number): string | null {
    const file = valueAt(this.#originFile, row)
    if (file === 0) return null
    return (
      this.#definitionOrigins.get(row) ??
      `${file}/${textAt(this.#uids, valueAt(this.#originUid, row))}`
    )
  }

  stateOf(row: number): RecordedState | null {
    return states[valueAt(this.#state, row)] ?? null
  }

  uidOf(row: number): string {
    return textAt(this.#uids, valueAt(this.#uid, row))
  }

  nameOf(row: number): string {
    return textAt(this.#names, valueAt(this.#name, row))
  }

  valueHashOf(row: number): string | null {
    return this.#hashAt(this.#valueHash, row)
  }

  doneHashOf(row: number): string | null {
    return this.#hashAt(this.#doneHash, row)
  }

  hashOf(row: number): string | null {
    return this.#hashAt(this.#hash, row)
  }

  /** The number of attempts. At least 1, because a start may be missing in the record. */
  attemptsOf(row: number): number {
    return Math.max(1, valueAt(this.#attempts, row))
  }

  hasValue(row: number): boolean {
    return valueAt(this.#valueFile, row) > 0
  }

  valueOf(row: number): RecordedValue | null {
    const file = valueAt(this.#valueFile, row)
    if (file === 0) return null
    return {
      file: file - 1,
      offset: valueAt(this.#valueOffset, row),
      bytes: valueAt(this.#valueBytes, row),
      crc: valueAt(this.#valueCrc, row),
    }
  }

  isIdentifiable(row: number): boolean {
    const hash = this.hashOf(row)
    if (hash !== null && !this.#isAmbiguous(hash)) return true
    return parseUidNumber(this.uidOf(row)) === null
  }

  setAmbiguous(hash: string): void {
    this.#ambiguousCodes.add(codeDigestOf(hash))
  }

  isMatched(row: number): boolean {
    return valueAt(this.#matchKind, row) > 0
  }

  isSameTask(row: number): boolean {
    return valueAt(this.#matchKind, row) === matchKinds.same
  }

  isChanged(row: number): boolean {
    return valueAt(this.#matchKind, row) === matchKinds.changed
  }

  #hashAt(column: Column, row: number): string | null {
    const at = valueAt(column, row)
    return this.#hashTexts[at - 1] ?? null
  }

  /**
   * The row of a task that this file created; otherwise 0, because the uid may belong to another
   * task in another file.
   */
  #rowInFile(uid: string): number {
    const number = findText(this.#uids, uid)
    const isHere = number !== -1 && valueAt(this.#fileOfUid, number) === this.#file
    return isHere ? valueAt(this.#rowOfUid, number) : 0
  }

  #indexOfHash(hash: string): number {
    const known = this.#hashes.get(hash)
    if (known !== undefined) return known
    this.#hashes.set(hash, this.#hashTexts.length)
    return this.#hashTexts.push(hash) - 1
  }

  #normalizeHash(uid: string, hash: string): string {
    if (parseUidNumber(uid) === null) return removeMark(hash)
    this.setAmbiguous(hash)
    return hash
  }

  #isAmbiguous(hash: string): boolean {
    return this.#ambiguousCodes.size > 0 && this.#ambiguousCodes.has(codeDigestOf(hash))
  }

  /**
   * The row of a task with a generated uid. A task whose definition changed gets a new row that
   * replaces the old one, because a row cannot move to another list of `EqualTasks`.
   */
  #rowOfGenerated(
    uid: number,
    origin: TaskOrigin | null,
    hashAt: number,
    rows: readonly number[],
  ): number {
    const file = this.#file - (origin?.filesBack ?? 0)
    const originUid = origin === null ? uid : indexOf(this.#uids, origin.uid)
    const known = origin === null ? 0 : this.#findOrigin(originUid, file)
    const isSame =
      hashAt === 0 ? valueAt(this.#hash, known) === 0 : this.#equals.has(known, hashAt, rows)
    if (known > 0 && isSame) return known
    setValue(this.#state, known, 0)
    const row = ++this.#size
    setValue(this.#originUid, row, originUid)
    setValue(this.#originFile, row, file)
    if (file === 1) setValue(this.#byFirstUid, originUid, row)
    else this.#byOrigin.set(`${file}/${originUid}`, row)
    if (known > 0) this.#definitionOrigins.set(row, `${this.#file}/${textAt(this.#uids, uid)}`)
    setValue(this.#createdFile, row, valueAt(this.#createdFile, known))
    if (hashAt > 0) this.#equals.add(row, hashAt, rows)
    return row
  }

  /**
   * Numbers attempts as the session of this file did. An attempt that may still run keeps its
   * number; any other attempt with the same uid gets a higher number, even before it starts.
   */
  #numberAttempts(uid: number, row: number, hashAt: number): void {
    const before = valueAt(this.#rowOfUid, uid)
    const known = valueAt(this.#attempts, row)
    if (before === 0) return this.#setAttempts(row, known)
    const isSame = before === row && valueAt(this.#hash, row) === hashAt
    if (isSame && this.stateOf(row) === 'open') return
    this.#setAttempts(row, Math.max(known, this.attemptsOf(before) + 1))
  }

  #setAttempts(row: number, attempts: number): void {
    setValue(this.#attempts, row, attempts)
    setValue(this.#attemptFile, row, this.#file)
  }

  #findOrigin(uid: number, file: number): number {
    if (file === 1) return valueAt(this.#byFirstUid, uid)
    return this.#byOrigin.get(`${file}/${uid}`) ?? 0
  }

  /** Takes the next equal task that is neither replaced by a changed definition nor outdated. */
  #matchEqual(hash: string | null, inputs: TaskInputs): number {
    if (hash === null || inputs.enclosing === null || this.#isAmbiguous(hash)) return 0
    const hashAt = (this.#hashes.get(hash) ?? -1) + 1
    if (hashAt === 0) return 0
    const isPassedOver = (row: number): boolean =>
      this.isMatched(row) || this.stateOf(row) === null || this.#isOutdated(row, inputs)
    return this.#equals.takeNext(hashAt, inputs.dependencies, isPassedOver)
  }

  /** Whether the task's value, or its running attempt, is older than one of its input values. */
  #isOutdated(row: number, { dependencies, enclosing }: TaskInputs): boolean {
    const isDone = this.stateOf(row) === 'done'
    const made = valueAt(isDone ? this.#valueFile : this.#attemptFile, row)
    const isLater = (one: number): boolean => valueAt(this.#valueFile, one) > made
    return made > 0 && (dependencies.some(isLater) || (enclosing ?? noRows).some(isLater))
  }
}

const unfinishedKey = (name: string, hash: string | null): string =>
  `${inputDigestOf(hash ?? '')}/${name}`

const noRows: never[] = []
