/** Where the values of the tasks of a record lie. */

import type { ValueLocation } from '../../checkpoint/results-reader.ts'
import { createColumn, setValue, valueAt } from '../../views/columns.ts'

/** Where the value of a task lies: in the results beside which file of the chain. */
export interface RecordedValue extends ValueLocation {
  readonly file: number
}

/** By rows of tasks. Files are numbered from 1 here, so that 0 is none. */
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

  /** The file of the value; 0 when it was not kept. */
  fileOf(row: number): number {
    return valueAt(this.#file, row)
  }

  /** `null` when the value was not kept. Files are numbered from 0. */
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
