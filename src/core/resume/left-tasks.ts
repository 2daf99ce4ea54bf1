/**
 * The unfinished tasks of a record by name and input, in the order of their creation. A later run
 * may create them again with other code. Filled on first use.
 */

import { type Column, createColumn, setValue, valueAt } from '../../views/columns.ts'
import { inputPartOf } from '../../foundation/ids.ts'

/** The name of a task, and its hash if it can be compared. */
export interface Named {
  readonly name: string
  readonly hash: string | null
}

/** Rows are numbered from 1. */
export class LeftTasks {
  readonly #names = new Map<string, number>()
  readonly #nameTexts: string[] = []
  readonly #name = createColumn('u32')
  #latestName = ''
  #latestNumber = 0
  /** By name and input: the first task that was not taken. */
  #firsts: Map<string, number> | null = null
  readonly #next: Column = createColumn('u32')

  get isFilled(): boolean {
    return this.#firsts !== null
  }

  setName(row: number, name: string): void {
    // Consecutive tasks often have the same name.
    if (name !== this.#latestName) {
      this.#latestName = name
      this.#latestNumber = this.#names.get(name) ?? this.#names.size + 1
      this.#names.set(name, this.#latestNumber)
      this.#nameTexts[this.#latestNumber - 1] = name
    }
    setValue(this.#name, row, this.#latestNumber)
  }

  nameOf(row: number): string {
    return this.#nameTexts[valueAt(this.#name, row) - 1] ?? ''
  }

  /** `hashOf` returns an empty text for a task without a hash, and `null` for one to leave out. */
  fill(size: number, hashOf: (row: number) => string | null): void {
    const firsts = (this.#firsts = new Map<string, number>())
    for (let row = size; row > 0; row--) {
      const hash = hashOf(row)
      if (hash === null) continue
      const key = keyOf(valueAt(this.#name, row), hash)
      setValue(this.#next, row, firsts.get(key) ?? 0)
      firsts.set(key, row)
    }
  }

  /** The first task that `isPassedOver` does not skip; 0 if there is none. */
  take({ name, hash }: Named, isPassedOver: (row: number) => boolean): number {
    const number = this.#names.get(name)
    if (this.#firsts === null || this.#firsts.size === 0 || number === undefined) return 0
    const key = keyOf(number, hash ?? '')
    let row = this.#firsts.get(key) ?? 0
    while (row > 0 && isPassedOver(row)) row = valueAt(this.#next, row)
    if (row > 0) this.#firsts.set(key, valueAt(this.#next, row))
    else this.#firsts.delete(key)
    return row
  }
}

const keyOf = (name: number, hash: string): string => `${name}/${inputPartOf(hash)}`
