/**
 * The tasks of an earlier run, over all files of its chain. A task that its caller named is
 * identified by its uid; any other by its `definition_hash` and its number among equal tasks,
 * because generated uids prove nothing. For such a task, a later file says which task of the record
 * it continues, because tasks are not created in the order of the program there.
 */

import type { ValueLocation } from '../../checkpoint/results-reader.ts'
import { type Column, createColumn, createTextIndex, findText } from '../../views/columns.ts'
import { indexOf, setValue, textAt, valueAt } from '../../views/columns.ts'
import { codePartOf, generatedNumber, inputPartOf } from '../../foundation/ids.ts'
import { isMarked, unmarked } from '../../foundation/ids.ts'
import { EqualTasks } from './equal-tasks.ts'
import type { TaskInputs, TaskOrigin } from '../entry.ts'

/** The name of a task, and its hash if it can be compared. */
export interface Named {
  readonly name: string
  readonly hash: string | null
}

/** The location of a task's value: the file of the chain, and the place in its results file. */
export interface RecordedValue extends ValueLocation {
  /** From 0. */
  readonly file: number
}

/** How a task of the record ended; `open` if it has not ended. */
export type RecordedState = 'open' | 'done' | 'failed' | 'canceled'

/** Indexed by the number in the column; 0 is no task. */
const states = [null, 'open', 'done', 'failed', 'canceled'] as const

/** What TaskCreated says about a task. */
export interface Creation extends Named {
  readonly origin: TaskOrigin | null
  /** Their uids in the same file. */
  readonly dependencies: readonly string[]
}

/** What distinguishes tasks with generated uids. */
interface Made {
  /** The number of its hash; 0 without one. */
  readonly hashAt: number
  /** The rows of its dependencies. */
  readonly rows: readonly number[]
}

/**
 * How a task of the new run relates to its row: `same`; `outdated`: equal, but gets newer values;
 * `changed`: continues it, but may differ. Only `same` gets anything from the record.
 */
const taken = { same: 1, outdated: 2, changed: 3 } as const

export const noInputs: TaskInputs = Object.freeze({ dependencies: [], around: [] })

/** Rows are numbered from 1; 0 means none. About 150 bytes per task, besides uid and hash. */
export class RecordedTasks {
  /** Uids are numbered; these are the row of the task that last had each one, and its file. */
  readonly #uids = createTextIndex()
  readonly #rowOfUid = createColumn('u32')
  readonly #fileOfUid = createColumn('u32')
  readonly #names = createTextIndex()
  /** Not a text index, because hashes are long and the strings exist already. */
  readonly #hashes = new Map<string, number>()
  readonly #hashTexts: string[] = []
  /** Codes that several functions of one file share. */
  readonly #ambiguousCodes = new Set<string>()
  readonly #equals = new EqualTasks()
  /** The unfinished tasks by name and input, the first one last; filled on first use. */
  #left: Map<string, number[]> | null = null
  /** Rows by origin: by uid for the first file, by file and uid for the others. */
  readonly #byFirstUid = createColumn('u32')
  readonly #byOrigin = new Map<string, number>()
  /** For tasks that continued with another definition: where they first had it. */
  readonly #places = new Map<number, string>()
  /** Per row. Tasks with generated uids: where they were created first; file 0 for others. */
  readonly #originUid = createColumn('u32')
  readonly #originFile = createColumn('u32')
  readonly #uid = createColumn('u32')
  readonly #name = createColumn('u32')
  readonly #hash = createColumn('u32')
  readonly #state = createColumn('u8')
  readonly #attempts = createColumn('u32')
  /** The latest file that contains the task. */
  readonly #createdFile = createColumn('u32')
  /** The file in which the latest attempt began. */
  readonly #attemptFile = createColumn('u32')
  readonly #doneFile = createColumn('u32')
  /** The hash when its value was computed, and when it was last DONE, perhaps with a kept value. */
  readonly #madeHash = createColumn('u32')
  readonly #doneHash = createColumn('u32')
  /** The file of the value, from 1; 0 if it was not stored. */
  readonly #valueFile = createColumn('u32')
  readonly #valueOffset = createColumn('f64')
  readonly #valueBytes = createColumn('u32')
  readonly #valueCrc = createColumn('u32')
  /** How the new run uses the task; see `taken`. */
  readonly #taken = createColumn('u8')
  #size = 0
  #file = 0

  /** The number of tasks. */
  get size(): number {
    return this.#size
  }

  /** The number of the current file, from 1. */
  get file(): number {
    return this.#file
  }

  /** In the next file, the same generated uid belongs to another task. */
  beginFile(): void {
    this.#file++
  }

  /**
   * Adds a created task, in the order of the file. `false` if the file already has it, which no
   * session writes: its uid, or that of the task that it continues, is damaged.
   */
  create(uid: string, { name, hash: given, origin, dependencies }: Creation): boolean {
    const hash = given !== null && isMarked(given) ? this.#takeMarked(uid, given) : given
    const number = indexOf(this.#uids, uid)
    const hashAt = hash === null ? 0 : this.#indexOfHash(hash) + 1
    const rows = dependencies.length === 0 ? none : dependencies.map((one) => this.#rowInFile(one))
    const isNamed = generatedNumber(uid) === null
    const row = isNamed
      ? valueAt(this.#rowOfUid, number) || ++this.#size
      : this.#rowOfMade(number, origin, { hashAt, rows })
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

  /** The latest attempt that may have begun. A task that was done in an earlier file runs again. */
  attempted(uid: string, attempt: number): void {
    const row = this.#rowInFile(uid)
    if (row === 0) return
    if (attempt > valueAt(this.#attempts, row)) this.#setAttempts(row, attempt)
    if (this.stateOf(row) === 'done' && valueAt(this.#doneFile, row) !== this.#file) {
      setValue(this.#state, row, states.indexOf('open'))
    }
  }

  /**
   * As `staysEnded` of the views: a done task stays done until it runs again. A value that it
   * computed itself replaces an earlier one.
   */
  end(uid: string, state: Exclude<RecordedState, 'open'>, isReused: boolean): number {
    const row = this.#rowInFile(uid)
    if (row === 0) return 0
    if (state === 'done') {
      const hash = valueAt(this.#hash, row)
      // A reused value keeps its hash. One from a cache has this hash: no session computed it.
      if (!isReused || this.stateOf(row) !== 'done') setValue(this.#madeHash, row, hash)
      setValue(this.#doneFile, row, this.#file)
      setValue(this.#doneHash, row, hash)
      if (!isReused) setValue(this.#valueFile, row, 0)
    } else if (state === 'canceled' && this.stateOf(row) === 'done') return row
    setValue(this.#state, row, states.indexOf(state))
    return row
  }

  /** Stores where the value of a task is that is done in this file. */
  keep(uid: string, { offset, bytes, crc }: ValueLocation): void {
    const row = this.#rowInFile(uid)
    if (row === 0 || valueAt(this.#doneFile, row) !== this.#file) return
    setValue(this.#valueFile, row, this.#file)
    setValue(this.#valueOffset, row, offset)
    setValue(this.#valueBytes, row, bytes)
    setValue(this.#valueCrc, row, crc)
  }

  /** The row of a task that the caller named; 0 if there is none, or for a generated uid. */
  findNamed(uid: string): number {
    return generatedNumber(uid) === null ? this.findUid(uid) : 0
  }

  /** The row of the task that last had this uid, whether or not it is the same task. */
  findUid(uid: string): number {
    const number = findText(this.#uids, uid)
    return number === -1 ? 0 : valueAt(this.#rowOfUid, number)
  }

  /** The row for a task of the new run, each at most once; 0 if the record has none. */
  take(uid: string, hash: string | null, inputs: TaskInputs): number {
    const named = this.findNamed(uid)
    const row = generatedNumber(uid) === null ? named : this.#takeEqual(hash, inputs)
    // Tasks with chosen uids stay the same task, also if they get other values now.
    const isOutdated = named > 0 && (inputs.around === null || this.#isOutdated(named, inputs))
    if (row > 0) setValue(this.#taken, row, isOutdated ? taken.outdated : taken.same)
    return row
  }

  /**
   * The row of an unfinished task, for a task of the new run whose code or dependencies changed, or
   * that cannot be compared: by name, input and order. It only says which task is continued; 0 if
   * there is none. `isLeft` is called once per row.
   */
  takeLeft(uid: string, call: Named & TaskInputs, isLeft: (row: number) => boolean): number {
    const { name, hash, dependencies } = call
    if (generatedNumber(uid) === null) return 0
    this.#left ??= this.#listLeft(isLeft)
    const rows = this.#left.get(leftKey(name, hash)) ?? none
    for (let row = rows.pop(); row !== undefined; row = rows.pop()) {
      if (this.isTaken(row)) continue
      const isSameCode = hash !== null && this.hashOf(row) === hash
      const isEqual = isSameCode && this.#equals.has(row, valueAt(this.#hash, row), dependencies)
      // The program creates both if they differ only in which of equal tasks they depend on.
      if (isSameCode && !isEqual && !dependencies.includes(0)) continue
      const isOutdated = isEqual && !this.#isAmbiguous(hash)
      setValue(this.#taken, row, isOutdated ? taken.outdated : taken.changed)
      return row
    }
    return 0
  }

  #listLeft(isLeft: (row: number) => boolean): Map<string, number[]> {
    const left = new Map<string, number[]>()
    for (let row = this.#size; row > 0; row--) {
      if (!isLeft(row) || valueAt(this.#originFile, row) === 0) continue
      const key = leftKey(this.nameOf(row), this.hashOf(row))
      const rows = left.get(key)
      if (rows === undefined) left.set(key, [row])
      else rows.push(row)
    }
    return left
  }

  /** Where a task with a generated uid was created first, relative to the new file. */
  originOf(row: number): TaskOrigin | null {
    const file = valueAt(this.#originFile, row)
    if (file === 0) return null
    return { uid: textAt(this.#uids, valueAt(this.#originUid, row)), filesBack: this.#file - file }
  }

  /** Where a task with a generated uid first had its definition; `null` for any other. */
  placeOf(row: number): string | null {
    const file = valueAt(this.#originFile, row)
    if (file === 0) return null
    return this.#places.get(row) ?? `${file}/${textAt(this.#uids, valueAt(this.#originUid, row))}`
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

  /** The hash when the task's value was computed; `null` if it cannot be compared. */
  madeHashOf(row: number): string | null {
    return this.#hashAt(this.#madeHash, row)
  }

  /** The hash when the task was last done, with a value of its own or a kept one. */
  doneHashOf(row: number): string | null {
    return this.#hashAt(this.#doneHash, row)
  }

  /** The hash when the task was last created. */
  hashOf(row: number): string | null {
    return this.#hashAt(this.#hash, row)
  }

  /** At least 1, because a start may be missing in the record. */
  attemptsOf(row: number): number {
    return Math.max(1, valueAt(this.#attempts, row))
  }

  hasValue(row: number): boolean {
    return valueAt(this.#valueFile, row) > 0
  }

  /** `null` if the value was not stored. */
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

  /** Whether a later run can identify this task. */
  isKnown(row: number): boolean {
    const hash = this.hashOf(row)
    if (hash !== null && !this.#isAmbiguous(hash)) return true
    return generatedNumber(this.uidOf(row)) === null
  }

  /** Several functions have the code of this hash. */
  setAmbiguous(hash: string): void {
    this.#ambiguousCodes.add(codePartOf(hash))
  }

  isTaken(row: number): boolean {
    return valueAt(this.#taken, row) > 0
  }

  /** Whether the task of the new run is the same and gets the same values. */
  isSame(row: number): boolean {
    return valueAt(this.#taken, row) === taken.same
  }

  /** Whether the task of the new run may be a different one. */
  isChanged(row: number): boolean {
    return valueAt(this.#taken, row) === taken.changed
  }

  #hashAt(column: Column, row: number): string | null {
    const at = valueAt(column, row)
    return this.#hashTexts[at - 1] ?? null
  }

  /** 0 if the task was not created in this file: another task may have had the same uid. */
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

  /** Equal functions may have captured different variables: a hash does not identify them. */
  #takeMarked(uid: string, hash: string): string {
    if (generatedNumber(uid) === null) return unmarked(hash)
    this.setAmbiguous(hash)
    return hash
  }

  #isAmbiguous(hash: string): boolean {
    return this.#ambiguousCodes.size > 0 && this.#ambiguousCodes.has(codePartOf(hash))
  }

  /**
   * The row of a task with a generated uid. A task that continues with another definition gets a
   * new row that replaces the old one, because the equal tasks of a row never change.
   */
  #rowOfMade(uid: number, origin: TaskOrigin | null, { hashAt, rows }: Made): number {
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
    if (known > 0) this.#places.set(row, `${this.#file}/${textAt(this.#uids, uid)}`)
    setValue(this.#createdFile, row, valueAt(this.#createdFile, known))
    if (hashAt > 0) this.#equals.add(row, hashAt, rows)
    return row
  }

  /**
   * Numbers attempts as the session of this file did: an attempt that may still run keeps its
   * number; anything else with the same uid gets a higher one, even before it starts.
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

  /** The next equal task that has not been replaced by another definition. */
  #takeEqual(hash: string | null, inputs: TaskInputs): number {
    if (hash === null || inputs.around === null || this.#isAmbiguous(hash)) return 0
    const hashAt = (this.#hashes.get(hash) ?? -1) + 1
    if (hashAt === 0) return 0
    const isPassedOver = (row: number): boolean =>
      this.isTaken(row) || this.stateOf(row) === null || this.#isOutdated(row, inputs)
    return this.#equals.take(hashAt, inputs.dependencies, isPassedOver)
  }

  /** Whether its value, or its running attempt, is older than a value that it gets now. */
  #isOutdated(row: number, { dependencies, around }: TaskInputs): boolean {
    const isDone = this.stateOf(row) === 'done'
    const made = valueAt(isDone ? this.#valueFile : this.#attemptFile, row)
    const isLater = (one: number): boolean => valueAt(this.#valueFile, one) > made
    return made > 0 && (dependencies.some(isLater) || (around ?? none).some(isLater))
  }
}

const leftKey = (name: string, hash: string | null): string => `${inputPartOf(hash ?? '')}/${name}`

const none: never[] = []
