/**
 * The uids of a record, and the task that last had each of them. A uid is represented by its slot,
 * a number that takes less memory than the text.
 */

import { generatedNumber, uidOfNumber } from '../../foundation/ids.ts'
import {
  type Column,
  createColumn,
  createTextIndex,
  findText,
  indexOf,
  setValue,
  textAt,
  valueAt,
} from '../../views/columns.ts'

/** The columns that are indexed by uid. */
interface UidColumns {
  /** The row of the task that last had the uid, and its file. */
  readonly row: Column
  readonly file: Column
}

/** Generated uids with higher numbers are stored as texts, because columns have no gaps. */
const maxNumbers = 2 ** 24

const createUidColumns = (): UidColumns => ({
  row: createColumn('u32'),
  file: createColumn('u32'),
})

/** Rows are numbered from 1; 0 means none. */
export class RecordedUids {
  readonly #texts = createTextIndex()
  readonly #byText = createUidColumns()
  readonly #byNumber = createUidColumns()

  /** The slot of a uid, which is assigned if it has none. */
  slotFor(uid: string): number {
    return numberSlot(uid) ?? indexOf(this.#texts, uid)
  }

  /** The row of the task that last had this uid; 0 if there is none. */
  find(uid: string): number {
    const slot = this.#slotOf(uid)
    return slot === null ? 0 : this.rowAt(slot)
  }

  /** The row of the task that last had this uid, if it was in this file; else 0. */
  findIn(uid: string, file: number): number {
    const slot = this.#slotOf(uid)
    return slot !== null && this.fileAt(slot) === file ? this.rowAt(slot) : 0
  }

  /** The latest file that has the uid; 0 for none. */
  fileAt(slot: number): number {
    return valueAt(this.#columnsOf(slot).file, indexIn(slot))
  }

  rowAt(slot: number): number {
    return valueAt(this.#columnsOf(slot).row, indexIn(slot))
  }

  set(slot: number, row: number, file: number): void {
    const columns = this.#columnsOf(slot)
    setValue(columns.row, indexIn(slot), row)
    setValue(columns.file, indexIn(slot), file)
  }

  uidAt(slot: number): string {
    return slot < 0 ? uidOfNumber(indexIn(slot)) : textAt(this.#texts, slot)
  }

  #slotOf(uid: string): number | null {
    const slot = numberSlot(uid) ?? findText(this.#texts, uid)
    return slot === -1 ? null : slot
  }

  #columnsOf(slot: number): UidColumns {
    return slot < 0 ? this.#byNumber : this.#byText
  }
}

/**
 * The slot of a generated uid: -2 for the number 0, -3 for 1, and so on. Texts have the numbers of
 * their index, from 0; -1 means none.
 */
function numberSlot(uid: string): number | null {
  const number = generatedNumber(uid)
  return number === null || number >= maxNumbers ? null : -2 - number
}

/** The index of a slot in its columns: the number of the uid, or that of the text. */
export const indexIn = (slot: number): number => (slot < 0 ? -2 - slot : slot)
