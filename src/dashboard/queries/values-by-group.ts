/**
 * Values of rows by group, such as the durations of tasks by name. All queries use the same memory,
 * because new arrays would create much garbage while a user selects a time range.
 */

class ValuesByGroup {
  #rows = new Uint32Array(0)
  #values = new Float64Array(0)
  #size = 0
  #counts = new Uint32Array(0)

  /** Removes all rows. At most `max` rows can then be added. */
  start(max: number, groups: number): void {
    if (this.#rows.length < max) {
      this.#rows = new Uint32Array(max)
      this.#values = new Float64Array(max)
    }
    this.#size = 0
    this.#counts = new Uint32Array(groups)
  }

  add(row: number, group: number): void {
    this.#rows[this.#size++] = row
    this.#counts[group] = (this.#counts[group] ?? 0) + 1
  }

  /** Returns the values of the added rows, indexed by group. They are valid until `start`. */
  collect(groupOf: (row: number) => number, valueOf: (row: number) => number): Float64Array[] {
    const next = new Uint32Array(this.#counts.length)
    let end = 0
    for (const [group, count] of this.#counts.entries()) {
      next[group] = end
      end += count
    }
    for (let at = 0; at < this.#size; at++) {
      const row = this.#rows[at] ?? 0
      const group = groupOf(row)
      const place = next[group] ?? 0
      this.#values[place] = valueOf(row)
      next[group] = place + 1
    }
    return Array.from(this.#counts, (count, group) => {
      const last = next[group] ?? 0
      return this.#values.subarray(last - count, last)
    })
  }
}

/** The shared instance. A query first calls `start`, which removes the rows of the last query. */
export const valuesByGroup = new ValuesByGroup()
