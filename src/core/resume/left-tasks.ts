/**
 * Tasks of a record that are not done, by their name and input and in the order in which they were
 * made: a later run has them again, with other code. Made when it is first asked for.
 */

import { type Column, createColumn, setValue, valueAt } from '../../views/columns.ts'
import { inputPartOf } from '../../foundation/ids.ts'

/** What a task is called, and what it is if that can be compared. */
export interface Named {
  readonly name: string
  readonly hash: string | null
}

/** Rows are numbered from 1. */
export class LeftTasks {
  readonly #names = new Map<string, number>()
  readonly #name = createColumn('u32')
  #latestName = ''
  #latestNumber = 0
  /** By name and input: the first that was not taken. */
  #firsts: Map<string, number> | null = null
  readonly #next: Column = createColumn('u32')

  get isFilled(): boolean {
    return this.#firsts !== null
  }

  setName(row: number, name: string): void {
    // Tasks of one name often follow each other.
    if (name !== this.#latestName) {
      this.#latestName = name
      this.#latestNumber = this.#names.get(name) ?? this.#names.size + 1
      this.#names.set(name, this.#latestNumber)
    }
    setValue(this.#name, row, this.#latestNumber)
  }

  /** `hashOf` gives an empty text for a task without one, and `null` for one that is not left. */
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

  /** The first of those that are not passed over; 0 if there is none. */
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
