/** Where the values of a record's tasks are stored. */

import type { ValueLocation } from '../../checkpoint/results-reader.ts'
import { createColumn, setValue, valueAt } from '../../views/columns.ts'

/** The location of a task's value: the file of the chain, and the place in its results file. */
export interface RecordedValue extends ValueLocation {
  readonly file: number
}

/** By rows of tasks. Files are numbered from 1 here; 0 means none. */
export class RecordedValues {
  readonly #file = createColumn('u32')
  readonly #offset = createColumn('f64')
  readonly #bytes = createColumn('u32')
  readonly #crc = createColumn('u32')

  set(row: number, file: number, { offset, bytes, crc }: ValueLocation): void {
    setValue(this.#file, row, file)
    setValue(this.#offset, row, offset)
    setValue(this.#bytes, row, bytes)
    setValue(this.#crc, row, crc)
  }

  delete(row: number): void {
    setValue(this.#file, row, 0)
  }

  /** The file of the value; 0 if it was not stored. */
  fileOf(row: number): number {
    return valueAt(this.#file, row)
  }

  /** `null` if the value was not stored. Files are numbered from 0. */
  find(row: number): RecordedValue | null {
    const file = this.fileOf(row)
    if (file === 0) return null
    return {
      file: file - 1,
      offset: valueAt(this.#offset, row),
      bytes: valueAt(this.#bytes, row),
      crc: valueAt(this.#crc, row),
    }
  }
}
