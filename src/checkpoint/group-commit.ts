/** Makes written bytes survive a power loss: one fdatasync at a time for all. Writes nothing. */

/** Syncs at once after a write, or as soon as the sync that is under way has finished. */
export class GroupCommit {
  readonly #sync: () => Promise<void>
  readonly #onFailure: (error: unknown) => void
  #writes = 0
  #covered = 0
  #running: Promise<void> | undefined
  #failure: { readonly error: unknown } | undefined

  constructor(sync: () => Promise<void>, onFailure: (error: unknown) => void) {
    this.#sync = sync
    this.#onFailure = onFailure
  }

  /** Call after bytes were written. */
  wrote(): void {
    this.#writes++
    void this.#start()
  }

  /**
   * Resolves when a sync that began after the last write has finished. Rejects once any sync has
   * failed: the system may have dropped the bytes, and a later success says nothing about them.
   */
  async settled(): Promise<void> {
    const target = this.#writes
    while (this.#covered < target) await this.#start()
    if (this.#failure !== undefined) throw this.#failure.error
  }

  #start(): Promise<void> {
    this.#running ??= this.#syncOnce()
    return this.#running
  }

  async #syncOnce(): Promise<void> {
    const began = this.#writes
    try {
      await this.#sync()
    } catch (error) {
      if (this.#failure === undefined) this.#onFailure(error)
      this.#failure ??= { error }
    }
    this.#running = undefined
    this.#covered = began
    if (this.#writes > began) void this.#start()
  }
}
