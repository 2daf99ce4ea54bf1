/**
 * Detects events that a record contains twice, by their ids. Remembers the last 65,536 to 131,072
 * ids in two generations. The older generation is dropped as a whole.
 */

const windowSize = 65_536

export class EventIds {
  #newer = new Map<string, number>()
  #older = new Map<string, number>()

  /**
   * Stores the line of an event, counted from 1. Returns the line of the latest event with the same
   * id, or 0 if there is none.
   */
  add(id: string, line: number): number {
    if (this.#newer.size === windowSize) {
      this.#older = this.#newer
      this.#newer = new Map()
    }
    const before = this.#newer.get(id) ?? this.#older.get(id) ?? 0
    this.#newer.set(id, line)
    return before
  }
}
