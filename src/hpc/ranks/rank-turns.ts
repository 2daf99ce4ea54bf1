/**
 * Lets the MPI tasks of one session at a time wait for their slots. A session reserves those of a
 * task all at once, but knows nothing of what others reserve: two tasks could hold a half each.
 */

interface Waiting {
  readonly owner: object
  readonly start: () => void
}

export class RankTurns {
  /** Of the programs that run. */
  readonly workers = new RankWorkers()
  #owner: object | null = null
  /** Tasks of the owner that have not begun. */
  #open = 0
  readonly #waiting: Waiting[] = []

  /** Calls `start` when it is the owner's turn, which lasts until `leave` was called for it. */
  enter(owner: object, start: () => void): void {
    const isFree = this.#owner === null || (this.#owner === owner && this.#waiting.length === 0)
    if (!isFree) return void this.#waiting.push({ owner, start })
    this.#owner = owner
    this.#open++
    start()
  }

  /** Of a task that has begun or ended. */
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
 * Names the workers of MPI programs: `<node of rank 0>/ranks/<number>`, with the lowest number that
 * no other program has there, so that those that run at the same time have different ones.
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
