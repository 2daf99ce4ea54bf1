/**
 * Lets the MPI tasks of only one session at a time wait for slots. Sessions do not see each other's
 * reservations, so two tasks could otherwise each hold half of the slots and wait forever.
 */

export class RankTurns {
  readonly workers = new RankWorkers()
  #owner: object | null = null
  /** The number of the owner's tasks that have not started. */
  #open = 0
  readonly #waiting: { readonly owner: object; readonly start: () => void }[] = []

  /** Calls `start` when it is the owner's turn. The caller must then call `leave` once. */
  enter(owner: object, start: () => void): void {
    const isFree = this.#owner === null || (this.#owner === owner && this.#waiting.length === 0)
    if (!isFree) return void this.#waiting.push({ owner, start })
    this.#owner = owner
    this.#open++
    start()
  }

  /** Must be called once per entered task: when it starts, or when it ends without a start. */
  leave(): void {
    if (--this.#open > 0) return
    this.#owner = this.#waiting[0]?.owner ?? null
    const other = this.#waiting.findIndex(({ owner }) => owner !== this.#owner)
    const next = this.#waiting.splice(0, other === -1 ? this.#waiting.length : other)
    this.#open = next.length
    for (const { start } of next) start()
  }
}

/** Assigns worker ids to MPI programs: `<node of rank 0>/ranks/<lowest free number>`. */
export class RankWorkers {
  readonly #assigned = new Set<string>()

  assign(node: string): string {
    for (let number = 1; ; number++) {
      const workerId = `${node}/ranks/${number}`
      if (this.#assigned.has(workerId)) continue
      this.#assigned.add(workerId)
      return workerId
    }
  }

  release(workerId: string): void {
    this.#assigned.delete(workerId)
  }
}
