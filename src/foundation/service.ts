/** Functions and services that run once, and return the same promise to every caller. */

/** A function that runs once. Each further call returns the promise of the first call. */
export interface Once<Arguments extends unknown[], Result> {
  (...given: Arguments): Promise<Result>
  readonly isCalled: boolean
  /** The promise of the first call; `null` before the first call. */
  readonly promise: Promise<Result> | null
}

export function once<Arguments extends unknown[], Result>(
  run: (...given: Arguments) => Promise<Result>,
): Once<Arguments, Result> {
  let promise: Promise<Result> | null = null
  const call = (...given: Arguments): Promise<Result> => (promise ??= run(...given))
  return Object.defineProperties(call, {
    isCalled: { get: () => promise !== null },
    promise: { get: () => promise },
  }) as Once<Arguments, Result>
}

/**
 * Runs between `start()` and `stop()`, which are both idempotent. A service that is stopped before
 * it starts never starts. `stop()` waits for a pending start.
 */
export abstract class Service implements AsyncDisposable {
  readonly #start = once(() => (this.isStopping ? Promise.resolve() : this.onStart()))
  readonly #stop = once(() => this.#stopOnce())

  /** Whether `stop()` was called. */
  protected get isStopping(): boolean {
    return this.#stop.isCalled
  }

  /** Starts the service once. Every call returns the same promise. */
  start(): Promise<void> {
    return this.#start()
  }

  /** Stops the service once. Every call returns the same promise. */
  stop(): Promise<void> {
    return this.#stop()
  }

  /** For `await using`: calls `stop()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  protected abstract onStart(): Promise<void>
  /** Called only after a successful start. */
  protected abstract onStop(): Promise<void>
  /** Called instead of `onStop` if the service was stopped without a successful start. */
  protected onAbandon(): void {}

  async #stopOnce(): Promise<void> {
    const hasStarted = await this.#start.promise?.then(
      () => true,
      () => false,
    )
    if (hasStarted === true) await this.onStop()
    else this.onAbandon()
  }
}
