/** Start and stop: each happens once, and every caller gets the same promise. */

/**
 * Something that runs between `start()` and `stop()`. Both are idempotent; stopping before starting
 * is fine and final; stopping while starting waits for the start.
 */
export abstract class Service implements AsyncDisposable {
  #starting: Promise<void> | undefined
  #stopping: Promise<void> | undefined

  /** Whether `stop()` was called. */
  protected get isStopping(): boolean {
    return this.#stopping !== undefined
  }

  /** Starts it, once; every call gives the same promise. */
  start(): Promise<void> {
    this.#starting ??= this.#stopping === undefined ? this.onStart() : Promise.resolve()
    return this.#starting
  }

  /** Stops it, once; every call gives the same promise, and it resolves when all is done. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stopOnce()
    return this.#stopping
  }

  /** For `await using`: calls `stop()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  protected abstract onStart(): Promise<void>
  /** Called only after a successful start. */
  protected abstract onStop(): Promise<void>
  /** Called instead of `onStop` when it was stopped without a successful start. */
  protected onAbandon(): void {}

  async #stopOnce(): Promise<void> {
    const hasStarted = await this.#starting?.then(
      () => true,
      () => false,
    )
    if (hasStarted === true) await this.onStop()
    else this.onAbandon()
  }
}
