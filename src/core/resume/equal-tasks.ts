/**
 * Lists of the equal tasks of a record, in the order of their creation. Tasks are equal if they
 * have the same hash and depend on the very same tasks. Equal dependencies are not enough, because
 * they may have returned different values.
 */

import { createColumn, setValue, valueAt } from '../../views/columns.ts'

/** Tasks are given as rows of the record, hashes as numbers; both start at 1. */
export class EqualTasks {
  /** For each list: its first task, its last task, and the last task that was taken. */
  readonly #first = createColumn('u32')
  readonly #last = createColumn('u32')
  readonly #taken = createColumn('u32')
  /** Lists with dependencies get odd numbers; the number of any other list is twice its hash. */
  readonly #numbers = new Map<string, number>()
  /** For each task: the next task of its list, and the list. */
  readonly #next = createColumn('u32')
  readonly #listOf = createColumn('u32')

  /** Appends a task to the list of its equals. */
  add(row: number, hash: number, dependencies: readonly number[]): void {
    let list = this.#find(hash, dependencies)
    if (list === 0) {
      list = 2 * this.#numbers.size + 1
      this.#numbers.set(keyOf(hash, dependencies), list)
    }
    const before = valueAt(this.#last, list)
    if (before === 0) setValue(this.#first, list, row)
    else setValue(this.#next, before, row)
    setValue(this.#last, list, row)
    setValue(this.#listOf, row, list)
  }

  /** Whether the task is in the list of this hash and these dependencies. */
  has(row: number, hash: number, dependencies: readonly number[]): boolean {
    const list = this.#find(hash, dependencies)
    return list > 0 && valueAt(this.#listOf, row) === list
  }

  /** Takes the next equal task that `isPassedOver` does not skip; 0 after the last one. */
  take(
    hash: number,
    dependencies: readonly number[],
    isPassedOver: (row: number) => boolean,
  ): number {
    const list = this.#find(hash, dependencies)
    if (list === 0) return 0
    let row = valueAt(this.#taken, list)
    do row = valueAt(row === 0 ? this.#first : this.#next, row === 0 ? list : row)
    while (row > 0 && isPassedOver(row))
    // Stays at the last task, because with 0 the next call would start with the first task again.
    if (row > 0) setValue(this.#taken, list, row)
    return row
  }

  /** 0 if there is no such list. */
  #find(hash: number, dependencies: readonly number[]): number {
    if (dependencies.length === 0) return 2 * hash
    return this.#numbers.get(keyOf(hash, dependencies)) ?? 0
  }
}

const keyOf = (hash: number, rows: readonly number[]): string => `${hash}/${rows.join(',')}`
