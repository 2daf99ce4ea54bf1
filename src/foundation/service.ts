/** Starting and stopping: each happens once, and every caller gets the same promise. */

/**
 * Something that runs between `start()` and `stop()`. Both are idempotent. Stopping before starting
 * is allowed and final; stopping while starting waits for the start.
 */
export abstract class Service implements AsyncDisposable {
  #starting: Promise<void> | undefined
  #stopping: Promise<void> | undefined

  /** Whether `stop()` was called. */
  protected get isStopping(): boolean {
    return this.#stopping !== undefined
  }

  /** Starts it once; every call returns the same promise. */
  start(): Promise<void> {
    this.#starting ??= this.#stopping === undefined ? this.onStart() : Promise.resolve()
    return this.#starting
  }

  /** Stops it once; every call returns the same promise, which resolves when it has stopped. */
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
  /** Called instead of `onStop` if it was stopped without a successful start. */
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
