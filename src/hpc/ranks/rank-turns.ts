/**
 * Lets the MPI tasks of only one session at a time wait for slots. A session reserves all slots of
 * a task together, but does not see the reservations of other sessions: two tasks could each hold
 * half of the slots and wait forever.
 */

interface Waiting {
  readonly owner: object
  readonly start: () => void
}

export class RankTurns {
  readonly workers = new RankWorkers()
  #owner: object | null = null
  /** The number of the owner's tasks that have not begun. */
  #open = 0
  readonly #waiting: Waiting[] = []

  /**
   * Calls `start` when it is the owner's turn. Each call must be followed by one call of `leave`.
   */
  enter(owner: object, start: () => void): void {
    const isFree = this.#owner === null || (this.#owner === owner && this.#waiting.length === 0)
    if (!isFree) return void this.#waiting.push({ owner, start })
    this.#owner = owner
    this.#open++
    start()
  }

  /** Called when a task has begun or ended. */
  leave(): void {
    if (--this.#open > 0) return
    this.#owner = this.#waiting[0]?.owner ?? null
    const other = this.#waiting.findIndex(({ owner }) => owner !== this.#owner)
    const next = this.#waiting.splice(0, other === -1 ? this.#waiting.length : other)
    this.#open = next.length
    for (const { start } of next) start()
  }
}

/**
 * Assigns worker ids to MPI programs: `<node of rank 0>/ranks/<number>`, with the lowest free
 * number, so that concurrent programs have different ids.
 */
export class RankWorkers {
  readonly #taken = new Set<string>()

  take(node: string): string {
    for (let number = 1; ; number++) {
      const workerId = `${node}/ranks/${number}`
      if (this.#taken.has(workerId)) continue
      this.#taken.add(workerId)
      return workerId
    }
  }

  release(workerId: string): void {
    this.#taken.delete(workerId)
  }
}
