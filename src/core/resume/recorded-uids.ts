/**
 * The uids of a record, and the task that had each of them last. A uid is known by its slot: a
 * number that takes less memory than the text.
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

/** Where something is kept for each uid. */
interface UidColumns {
  /** The row of the task that had the uid last, and the file. */
  readonly row: Column
  readonly file: Column
}

/** Generated uids with higher numbers than this are looked up as texts: columns have no gaps. */
const mostNumbers = 2 ** 24

const createUidColumns = (): UidColumns => ({
  row: createColumn('u32'),
  file: createColumn('u32'),
})

/** Rows are numbered from 1, so that 0 is none. */
export class RecordedUids {
  readonly #texts = createTextIndex()
  readonly #byText = createUidColumns()
  readonly #byNumber = createUidColumns()

  /** The slot of a uid, which it gets now if it has none. */
  slotFor(uid: string): number {
    return numberSlot(uid) ?? indexOf(this.#texts, uid)
  }

  /** The row of the task that had this uid last; 0 if there is none. */
  find(uid: string): number {
    const slot = this.#slotOf(uid)
    return slot === null ? 0 : this.rowAt(slot)
  }

  /** The same, if that was in this file. */
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
 * their index, from 0; -1 is none.
 */
function numberSlot(uid: string): number | null {
  const number = generatedNumber(uid)
  return number === null || number >= mostNumbers ? null : -2 - number
}

/** The number of a slot in the columns of its kind: that of the uid, or that of the text. */
export const indexIn = (slot: number): number => (slot < 0 ? -2 - slot : slot)
