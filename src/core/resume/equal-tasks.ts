/**
 * Lists of the equal tasks of a record, in the order of their creation. Tasks are equal if they
 * have the same hash and depend on the very same tasks; dependencies that are only equal may have
 * had different values.
 */

import { type Column, createColumn, setValue, valueAt } from '../../views/columns.ts'

/** For each list: its first task, its last one, and the last one that was taken. */
interface ListColumns {
  readonly first: Column
  readonly last: Column
  readonly taken: Column
}

const createLists = (): ListColumns => ({
  first: createColumn('u32'),
  last: createColumn('u32'),
  taken: createColumn('u32'),
})

/** Tasks are rows of the record; hashes are numbered. Both start at 1. */
export class EqualTasks {
  readonly #byHash = createLists()
  readonly #byDependencies = createLists()
  /**
   * The numbers of lists with dependencies, from -1 down. Other lists have the number of their
   * hash.
   */
  readonly #numbers = new Map<string, number>()
  readonly #next = createColumn('u32')
  /** The list of each task, encoded by `toUnsigned`; 0 for none. */
  readonly #listOf = createColumn('u32')

  /** Appends a task to the list of its equals. */
  add(row: number, hash: number, dependencies: readonly number[]): void {
    let list = this.#find(hash, dependencies)
    if (list === undefined) {
      list = -1 - this.#numbers.size
      this.#numbers.set(keyOf(hash, dependencies), list)
    }
    const { first, last } = this.#columnsOf(list)
    const at = Math.abs(list)
    const before = valueAt(last, at)
    if (before === 0) setValue(first, at, row)
    else setValue(this.#next, before, row)
    setValue(last, at, row)
    setValue(this.#listOf, row, toUnsigned(list))
  }

  /** Whether the task is in the list of this hash and these dependencies. */
  has(row: number, hash: number, dependencies: readonly number[]): boolean {
    const list = this.#find(hash, dependencies)
    return list !== undefined && valueAt(this.#listOf, row) === toUnsigned(list)
  }

  /** The next of the equal tasks that `isPassedOver` does not skip; 0 after the last. */
  take(
    hash: number,
    dependencies: readonly number[],
    isPassedOver: (row: number) => boolean,
  ): number {
    const list = this.#find(hash, dependencies)
    if (list === undefined) return 0
    const { first, taken } = this.#columnsOf(list)
    const at = Math.abs(list)
    let row = valueAt(taken, at)
    do row = row === 0 ? valueAt(first, at) : valueAt(this.#next, row)
    while (row > 0 && isPassedOver(row))
    // Not advanced past the end, so that the next call does not start again with the first.
    if (row > 0) setValue(taken, at, row)
    return row
  }

  #find(hash: number, dependencies: readonly number[]): number | undefined {
    return dependencies.length === 0 ? hash : this.#numbers.get(keyOf(hash, dependencies))
  }

  #columnsOf(list: number): ListColumns {
    return list < 0 ? this.#byDependencies : this.#byHash
  }
}

const toUnsigned = (list: number): number => (list < 0 ? 1 - 2 * list : 2 * list)

const keyOf = (hash: number, rows: readonly number[]): string => `${hash}/${rows.join(',')}`
