/**
 * Lists the equal tasks of a record in order of creation. Tasks are equal if they have the same
 * hash and depend on the same tasks. It is not enough that their dependencies are equal, because
 * equal tasks may have returned different values.
 */

import { createColumn, setValue, valueAt } from '../../views/columns.ts'

/**
 * Lists of equal tasks. Tasks are given as rows of the record, hashes as numbers; both start at 1.
 */
export class EqualTasks {
  /** For each list: its first task, its last task, and the task that was taken last. */
  readonly #first = createColumn('u32')
  readonly #last = createColumn('u32')
  readonly #taken = createColumn('u32')
  /**
   * The numbers of lists whose tasks have dependencies. These numbers are odd; the number of any
   * other list is twice its hash.
   */
  readonly #numbers = new Map<string, number>()
  /** For each task: the next task in its list, and the number of the list. */
  readonly #next = createColumn('u32')
  readonly #listOf = createColumn('u32')

  add(row: number, hash: number, dependencies: readonly number[]): void {
    let list = this.#find(hash, dependencies)
    if (list === 0) {
      list = 2 * this.#numbers.size + 1
      this.#numbers.set(listKey(hash, dependencies), list)
    }
    const before = valueAt(this.#last, list)
    if (before === 0) setValue(this.#first, list, row)
    else setValue(this.#next, before, row)
    setValue(this.#last, list, row)
    setValue(this.#listOf, row, list)
  }

  has(row: number, hash: number, dependencies: readonly number[]): boolean {
    const list = this.#find(hash, dependencies)
    return list > 0 && valueAt(this.#listOf, row) === list
  }

  /** Takes the next equal task that `isSkipped` does not skip. Returns 0 after the last one. */
  takeNext(
    hash: number,
    dependencies: readonly number[],
    isSkipped: (row: number) => boolean,
  ): number {
    const list = this.#find(hash, dependencies)
    if (list === 0) return 0
    let row = valueAt(this.#taken, list)
    do row = valueAt(row === 0 ? this.#first : this.#next, row === 0 ? list : row)
    while (row > 0 && isSkipped(row))
    // Never reset to 0, because the next call would then start again with the first task.
    if (row > 0) setValue(this.#taken, list, row)
    return row
  }

  #find(hash: number, dependencies: readonly number[]): number {
    if (dependencies.length === 0) return 2 * hash
    return this.#numbers.get(listKey(hash, dependencies)) ?? 0
  }
}

const listKey = (hash: number, rows: readonly number[]): string => `${hash}/${rows.join(',')}`
